// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/worker_failure.h"

#include <csignal>

namespace regroup::rendezvous {

std::string_view to_string(FailureKind kind) noexcept {
    switch (kind) {
        case FailureKind::failure:
            return "failure";
        case FailureKind::hang:
            return "hang";
        case FailureKind::user_error:
            return "user_error";
        case FailureKind::retry:
            return "retry";
        case FailureKind::bad_node:
            return "bad_node";
    }
    return "unknown";
}

std::string_view to_string(PeerError error) noexcept {
    switch (error) {
        case PeerError::none:
            return "none";
        case PeerError::awaited:
            return "awaited";
        case PeerError::lost:
            return "lost";
    }
    return "unknown";
}

bool outranks(const WorkerFailure& a, const WorkerFailure& b) noexcept {
    const auto weight = [](const WorkerFailure& failure) {
        const int own = failure.announced ? 1 : -static_cast<int>(failure.peer_error);
        switch (failure.signal) {
            case 0:
                return failure.start_error.empty() ? own : 2;
            case SIGABRT:
            case SIGHUP:
            case SIGINT:
            case SIGPIPE:
            case SIGTERM:
                return own;
            default:
                return 2;  // A crash, or a signal from outside.
        }
    };
    return weight(a) > weight(b);
}

int shell_exit_code(const WorkerFailure& failure) noexcept {
    if (!failure.start_error.empty()) {
        return 127;
    }
    return failure.signal != 0 ? 128 + failure.signal : failure.exit_code;
}

}  // namespace regroup::rendezvous
