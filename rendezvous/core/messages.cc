// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/messages.h"

#include <algorithm>

#include "rendezvous/base/names.h"

namespace regroup::rendezvous {

Duration usual_heartbeat_timeout(std::uint32_t nodes_min) {
    const Duration shared = nodes_min * std::chrono::milliseconds(3);  // For three reports of each.
    return std::clamp(shared, JobPolicy{}.heartbeat_timeout, kHeartbeatTimeoutMax);
}

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
    if (policy.heartbeat_timeout > kHeartbeatTimeoutMax) {
        return Failure(Errc::invalid_argument, "the heartbeat timeout must be at most 1 hour");
    }
    const Budgets& budgets = policy.budgets;
    const auto [shortest, longest] =
        std::minmax({policy.last_call, policy.shutdown_timeout, policy.grow_after,
                     policy.regroup_window, policy.prepare_timeout, policy.finish_timeout,
                     budgets.delay, budgets.node_failures_window});
    if (shortest < Duration::zero()) {
        return Failure(Errc::invalid_argument, "time limits must not be negative");
    }
    if (longest > kWaitMax) {
        return Failure(Errc::invalid_argument, "time limits must be at most 30 days");
    }
    return {};
}

std::string_view to_string(NodeState state) noexcept {
    return name_in({"stopped", "running", "stopping", "finished"}, state);
}

std::string_view to_string(LogStream stream) noexcept {
    return name_in({"out", "err"}, stream);
}

std::string_view to_string(Operate::Action action) noexcept {
    switch (action) {
        case Operate::Action::drain:
            return "drain";
        case Operate::Action::release:
            return "release";
        case Operate::Action::stop:
            return "stop";
        case Operate::Action::logs:
            return "logs";
    }
    return "unknown";
}

std::string_view to_string(Outcome outcome) noexcept {
    return name_in({"succeeded", "failed", "stopped"}, outcome);
}

std::string_view to_string(RankOrder order) noexcept {
    return name_in({"auto", "joined", "name", "scheduler", "topology", "file"}, order);
}

std::string_view to_string(Reaction reaction) noexcept {
    return name_in({"restart", "fail", "retry", "replace-node"}, reaction);
}

void Goodput::add(const Incident& incident) noexcept {
    ++count;
    planned += incident.planned ? 1 : 0;
    cut_short += incident.cut_short ? 1 : 0;
    until_start += incident.until_start() ? 1 : 0;
    lost += incident.total();
    lost_steps += incident.lost_steps;
    lost_at_least = lost_at_least || incident.lost_at_least;
}

}  // namespace regroup::rendezvous
