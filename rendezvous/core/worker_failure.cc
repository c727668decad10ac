// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/worker_failure.h"

#include <csignal>

#include "rendezvous/base/names.h"

namespace regroup::rendezvous {

std::string_view to_string(FailureKind kind) noexcept {
    return name_in({"failure", "hang", "user_error", "retry", "bad_node"}, kind);
}

std::string_view to_string(PeerError error) noexcept {
    return name_in({"none", "awaited", "lost"}, error);
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
