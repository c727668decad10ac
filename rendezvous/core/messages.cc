// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/messages.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>

#include "rendezvous/core/wording.h"

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

Result<void> validate(const JobPolicy& policy) {
    if (policy.nodes_min == 0) {
        return Failure(Errc::invalid_argument, "the minimum number of nodes must be at least 1");
    }
    if (policy.nodes_min > policy.nodes_max) {
        return Failure(Errc::invalid_argument,
                       "the minimum number of nodes, " + std::to_string(policy.nodes_min) +
                           ", exceeds the maximum, " + std::to_string(policy.nodes_max));
    }
    if (policy.heartbeat_timeout < std::chrono::milliseconds(100)) {
        return Failure(Errc::invalid_argument, "the heartbeat timeout must be at least 100 ms");
    }
    const Budgets& budgets = policy.budgets;
    if (std::min({policy.last_call, policy.shutdown_timeout, policy.grow_after, policy.regroup_call,
                  policy.prepare_timeout, budgets.delay, budgets.strikes_window}) <
        Duration::zero()) {
        return Failure(Errc::invalid_argument, "time limits must not be negative");
    }
    return {};
}

std::string signal_name(int signal) {
    for (const SignalName& entry : kSignalNames) {
        if (entry.number == signal) {
            return std::string(entry.name);
        }
    }
    return "signal " + std::to_string(signal);
}

namespace {

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

std::string_view to_string(NodeState state) noexcept {
    switch (state) {
        case NodeState::stopped:
            return "stopped";
        case NodeState::running:
            return "running";
        case NodeState::stopping:
            return "stopping";
        case NodeState::finished:
            return "finished";
    }
    return "unknown";
}

std::string_view to_string(Operate::Action action) noexcept {
    switch (action) {
        case Operate::Action::drain:
            return "drain";
        case Operate::Action::stop:
            return "stop";
        case Operate::Action::status:
            return "status";
    }
    return "unknown";
}

std::string_view to_string(Outcome outcome) noexcept {
    switch (outcome) {
        case Outcome::succeeded:
            return "succeeded";
        case Outcome::failed:
            return "failed";
        case Outcome::stopped:
            return "stopped";
    }
    return "unknown";
}

std::string_view to_string(Reaction reaction) noexcept {
    switch (reaction) {
        case Reaction::restart:
            return "restart";
        case Reaction::fail:
            return "fail";
        case Reaction::retry:
            return "retry";
        case Reaction::replace_node:
            return "replace-node";
    }
    return "unknown";
}

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

std::string describe(const Incident& incident) {
    const auto ms = [](Duration duration) {
        char text[32];
        std::snprintf(text, sizeof text, "%.1f",
                      std::chrono::duration<double, std::milli>(duration).count());
        return std::string(text);
    };
    std::string what = incident.planned ? "changed in " : "recovered in ";
    if (incident.cut_short) {
        what = incident.planned ? "change not complete after " : "not recovered after ";
    }
    std::string text = what + ms(incident.total()) + " ms: " + incident.cause;
    if (!incident.decision.empty()) {
        text += "; " + incident.decision;
    }
    if (incident.cut_short) {
        text += incident.next_round == RoundId::none
                    ? "; no round took its place"
                    : "; round " + std::to_string(number(incident.next_round)) +
                          " ended before its first step";
    }
    if (incident.lost_steps > 0 && incident.step > 0) {
        const std::uint64_t back_to = incident.step - 1;
        text += "; no process had kept the last state: back from step " +
                std::to_string(back_to + incident.lost_steps) + " to step " +
                std::to_string(back_to) + " (" +
                counted(static_cast<std::size_t>(incident.lost_steps), "step") + " to do again)";
    }
    return text + " (detect " + ms(incident.detect) + ", decide " + ms(incident.decide) +
           ", stop " + ms(incident.stop) + ", join " + ms(incident.join) + ", communicator " +
           ms(incident.communicator) + ", state " + ms(incident.state) +
           (incident.cut_short ? ", end " : ", first step ") + ms(incident.first_step) + ")";
}

}  // namespace regroup::rendezvous
