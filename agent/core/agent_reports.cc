// SPDX-License-Identifier: Apache-2.0
//
// The messages of live workers, and the health of the node.
#include <algorithm>
#include <utility>

#include "agent/core/agent_state.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::agent::core {

using rendezvous::NodeState;
using Check = AgentState::Round::Check;

namespace {

// A node that may not take part tells a daemon that it finds within this time.
constexpr Duration kFaultLimit = std::chrono::seconds(1);

}  // namespace

void handle(AgentState& node, Instant now, const WorkerAttached& event) {
    Worker& worker = node.workers[event.local_rank];
    if (!worker.alive()) {
        return;
    }
    const bool is_through = worker.elastic && !event.elastic;
    worker.elastic = event.elastic;
    worker.may_wait = event.may_wait;
    worker.stops = event.stops;
    if (is_through) {
        // The worker has finished its training. It needs its peers no more, reaches no step
        // boundary any more, and ends like a program without the SDK.
        const std::uint32_t rank = node.round.assignment.first_rank + event.local_rank;
        std::erase_if(node.report.broken_links,
                      [&](const auto& link) { return link.rank == rank; });
        if (node.report.state == NodeState::running && node.report.broken_links.empty()) {
            node.round.ended_at = Instant::max();
        }
        if (std::exchange(node.report.elastic, false)) {
            tell(node, now);
        }
    }
    update_elastic(node, now);
}

// The node stays elastic while the replacement of a lost worker has not attached yet.
void update_elastic(AgentState& node, Instant now) {
    if (node.workers.all_elastic() && !node.report.elastic) {
        node.report.elastic = true;
        if (!is_quitting(node)) {
            tell(node, now);
        }
    }
}

void handle(AgentState& node, Instant now, const WorkerResumed& event) {
    const bool is_rank_zero = node.round.assignment.first_rank + event.local_rank == 0;
    if (!is_rank_zero || is_quitting(node) || event.resumed.round != node.report.round) {
        return;
    }
    node.round.resumed = event.resumed;
    node.round.resumed_at = now;
    node.report.step = std::max(node.report.step, event.resumed.step);
    if (node.link.up) {
        node.effects.push_back(SendToDaemon{event.resumed});
        node.link.heartbeat_at =
            std::min(node.link.heartbeat_at, after(now, node.config.policy.heartbeat_timeout / 3));
    }
}

// Only reports the peer: the daemon finds out whether it is dead. A worker that has finished its
// training needs no peer.
void handle(AgentState& node, Instant now, const WorkerLostPeer& event) {
    const Worker& worker = node.workers[event.local_rank];
    if (!worker.elastic || worker.is_out()) {
        return;
    }
    const std::uint32_t rank = node.round.assignment.first_rank + event.local_rank;
    const bool is_news =
        std::none_of(node.report.broken_links.begin(), node.report.broken_links.end(),
                     [&](const auto& link) { return link.rank == rank; });
    if (runs(node, event.round) && is_news) {
        node.report.broken_links.push_back({rank, event.peer, event.text});
        node.round.ended_at = std::min(node.round.ended_at, now);
        tell(node, now);
    }
}

// A leaving node gets no more time.
void handle(AgentState& node, Instant now, const WorkersAtWork& event) {
    const bool suspending = node.report.state == NodeState::stopping && node.report.elastic &&
                            event.round == node.report.round && !node.workers.all_out();
    const Instant until = after(now, event.left);
    if (!suspending || node.leave.stage != LeaveStage::member ||
        node.grace.resist_at != Instant::max() || until <= node.grace.kill_at) {
        return;
    }
    const bool first = !std::exchange(node.grace.in_user_code, true);
    if (first) {
        node.grace.tell_at = node.grace.kill_at;
    }
    node.grace.kill_at = until;
    if (first) {
        tell(node, now);
    }
}

void update_at_work(AgentState& node, Instant now) {
    Instant until = node.grace.in_user_code ? node.grace.kill_at : now;
    // A check that began late may end later than the daemon waits for workers.
    if (node.round.check == Check::awaited &&
        node.round.check_until > after(node.round.ended_at, node.config.policy.shutdown_timeout)) {
        until = std::max(until, node.round.check_until);
    }
    node.report.at_work = node.report.state == NodeState::stopping
                              ? std::max(Duration::zero(), until - now)
                              : Duration::zero();
}

void handle(AgentState& node, Instant /*now*/, const StepsCommitted& event) {
    if (event.step > std::exchange(node.report.held_step, event.step)) {
        node.link.give_up_at = Instant::max();  // A node that commits steps needs no daemon.
    }
    node.report.step = std::max(node.report.step, event.step);
}

void handle(AgentState& node, Instant now, const HangSuspected& event) {
    if (runs(node, event.round) && node.report.hang != event.hang) {
        node.report.hang = event.hang;
        tell(node, now);
    }
}

void save_stacks(AgentState& node) {
    node.round.stacks_being_saved = node.round.stacks_wanted.alarm;
    const rendezvous::SaveStacks& wanted = node.round.stacks_wanted;
    node.effects.push_back(SaveStacks{node.report.round, wanted.reason, wanted.positions_only});
}

void handle(AgentState& node, Instant now, const StacksSaved& event) {
    if (event.round != node.report.round || is_quitting(node) ||
        node.round.stacks_being_saved == 0) {
        return;
    }
    const std::uint32_t alarm = std::exchange(node.round.stacks_being_saved, 0);
    if (alarm != node.round.stacks_wanted.alarm) {
        // The daemon withdrew the alarm that these positions belong to. They are too old for the
        // new alarm.
        save_stacks(node);
        return;
    }
    node.report.positions = event.positions;
    node.report.alarm = alarm;
    tell(node, now);
}

// ---- The health of the node.

// A leaving node takes part in no further round.
void check_node(AgentState& node, Instant now) {
    if (node.config.health_limit > Duration::zero() && node.leave.stage == LeaveStage::member &&
        node.round.check == Check::none) {
        node.round.check = Check::awaited;
        node.round.check_until = after(now, node.config.health_limit);
        node.effects.push_back(CheckNode{});
    }
}

void handle(AgentState& node, Instant now, const NodeChecked& event) {
    if (node.round.check == Check::awaited) {
        node.round.check = Check::done;
    }
    const bool has_not_joined =
        !node.link.up && node.report.round == RoundId::none && !is_quitting(node);
    if (has_not_joined) {
        node.link.give_up_at = after(now, node.config.join_timeout);
    }
    if (event.fault.empty() || node.leave.stage > LeaveStage::asked) {
        settle(node, now);
        return;
    }
    node.fault = event.fault;
    if (node.link.up || node.report.round != RoundId::none) {
        quit_unhealthy(node, now);
    } else {
        node.report.draining = node.fault;
        node.link.give_up_at = std::min(node.link.give_up_at, after(now, kFaultLimit));
    }
}

// The join said that the node leaves, so that no round was formed with it.
void quit_unhealthy(AgentState& node, Instant now) {
    quit(node, now, Quit{kExitUnhealthy, 0, {QuitCause::unhealthy, Unhealthy{node.fault}}});
}

}  // namespace regroup::agent::core
