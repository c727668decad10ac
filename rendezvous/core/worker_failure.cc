// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/worker_failure.h"

#include <array>
#include <csignal>

namespace regroup::rendezvous {

namespace {

struct SignalName {
    int number;
    std::string_view name;
};

constexpr std::array kSignalNames{
    SignalName{SIGHUP, "SIGHUP"},   SignalName{SIGINT, "SIGINT"},   SignalName{SIGQUIT, "SIGQUIT"},
    SignalName{SIGILL, "SIGILL"},   SignalName{SIGTRAP, "SIGTRAP"}, SignalName{SIGABRT, "SIGABRT"},
    SignalName{SIGBUS, "SIGBUS"},   SignalName{SIGFPE, "SIGFPE"},   SignalName{SIGKILL, "SIGKILL"},
    SignalName{SIGUSR1, "SIGUSR1"}, SignalName{SIGSEGV, "SIGSEGV"}, SignalName{SIGUSR2, "SIGUSR2"},
    SignalName{SIGPIPE, "SIGPIPE"}, SignalName{SIGALRM, "SIGALRM"}, SignalName{SIGTERM, "SIGTERM"},
    SignalName{SIGXCPU, "SIGXCPU"}, SignalName{SIGXFSZ, "SIGXFSZ"}, SignalName{SIGSYS, "SIGSYS"},
};

}  // namespace

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

std::string signal_name(int signal) {
    for (const SignalName& entry : kSignalNames) {
        if (entry.number == signal) {
            return std::string(entry.name);
        }
    }
    return "signal " + std::to_string(signal);
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
