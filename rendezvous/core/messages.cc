// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/messages.h"

#include <algorithm>
#include <cstdio>

#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

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

void Goodput::add(const Incident& incident) noexcept {
    ++count;
    planned += incident.planned ? 1 : 0;
    cut_short += incident.cut_short ? 1 : 0;
    lost += incident.total();
    lost_steps += incident.lost_steps;
    lost_at_least = lost_at_least || incident.lost_at_least;
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
        const std::string or_more = incident.lost_at_least ? " or more" : "";
        text += "; no process had kept the last state: back from step " +
                std::to_string(back_to + incident.lost_steps) +
                (incident.lost_at_least ? " or later" : "") + " to step " +
                std::to_string(back_to) + " (" +
                counted(static_cast<std::size_t>(incident.lost_steps), "step") + or_more +
                " to do again)";
    } else if (incident.lost_at_least) {
        text += "; no process had kept the last state, and how far the job had come is not known";
    }
    return text + " (detect " + ms(incident.detect) + ", decide " + ms(incident.decide) +
           ", stop " + ms(incident.stop) + ", join " + ms(incident.join) + ", communicator " +
           ms(incident.communicator) + ", state " + ms(incident.state) +
           (incident.cut_short ? ", end " : ", first step ") + ms(incident.first_step) + ")";
}

}  // namespace regroup::rendezvous
