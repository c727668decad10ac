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

// What a worker has said of its failure, as part of a sentence.
std::string own_words(const WorkerFailure& failure) {
    constexpr std::size_t kBytesMax = 300;
    if (!failure.announced) {
        return "";
    }
    std::string words = failure.error_message.substr(0, failure.error_message.find('\n'));
    if (words.size() > kBytesMax) {
        std::size_t end = kBytesMax;
        while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xc0U) == 0x80) {
            --end;  // Within a character.
        }
        words = words.substr(0, end) + "...";
    }
    const std::size_t last = words.find_last_not_of(words.ends_with("...") ? " " : ". ");
    return last == std::string::npos ? "" : ": " + words.substr(0, last + 1);
}

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

std::string signal_name(int signal) {
    for (const SignalName& entry : kSignalNames) {
        if (entry.number == signal) {
            return std::string(entry.name);
        }
    }
    return "signal " + std::to_string(signal);
}

std::string describe(const WorkerFailure& failure) {
    const std::string who = "rank " + std::to_string(failure.rank) + " on " + failure.node;
    if (!failure.start_error.empty()) {
        return who + " could not start: " + failure.start_error;
    }
    if (failure.kind == FailureKind::hang) {
        return who + (failure.by_silence ? " was silent longest as its round hung, and was ended"
                                         : " hung and was ended");
    }
    if (failure.signal != 0) {
        return who + " was ended by " + signal_name(failure.signal) + own_words(failure);
    }
    if (failure.unfinished) {
        return who + " exited with code 0 before its training was finished" + own_words(failure);
    }
    return who + " exited with code " + std::to_string(failure.exit_code) + own_words(failure);
}

bool outranks(const WorkerFailure& a, const WorkerFailure& b) noexcept {
    const auto weight = [](const WorkerFailure& failure) {
        const int own = failure.announced ? 1 : 0;
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
                return 2;  // From outside, or a crash.
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
