// SPDX-License-Identifier: Apache-2.0
//
// How rounds begin and end on the node.
#include <algorithm>
#include <utility>

#include "agent/core/agent_state.h"

namespace regroup::agent::core {

using rendezvous::NodeState;

namespace {

void report_on(AgentState& node, RoundId round) {
    rendezvous::NodeReport report;
    report.round = round;
    report.state = node.report.state;
    report.store_port = node.report.store_port;
    report.elastic = node.report.elastic;
    report.step = node.report.step;
    report.held_step = node.report.held_step;
    report.at_work = node.report.at_work;
    report.draining = std::move(node.report.draining);
    node.report = std::move(report);
}

}  // namespace

// The assignment may name a store of this node that served an earlier round and is closed: messages
// may overtake each other, or an earlier assignment may have been lost.
bool names_spent_store(const AgentState& node, const Assignment& assignment) {
    return assignment.group_rank == 0 && assignment.master_port != node.report.store_port;
}

void begin_round(AgentState& node, Instant now, const Assignment& assignment) {
    ENSURE(is_ready(node));
    node.round = {};
    node.round.assignment = assignment;
    report_on(node, assignment.round);
    node.report.state = NodeState::running;
    node.link.queued = false;
    node.ahead = {};
    node.leave.saved = node.leave.failed = 0;
    if (node.leave.signal == 0) {
        node.leave.stage = LeaveStage::member;  // The daemon repeats whether the node must leave.
    }
    Workers::Places places = node.workers.assign(assignment.round);
    // Elastic workers report when they train again. For other workers the recovery ends here, and
    // the next heartbeat would be late. The report follows when it is known that all could start.
    const bool all_are_new = places.assigned.empty();
    node.effects.push_back(BeginRound{assignment});
    if (!places.assigned.empty()) {
        node.effects.push_back(AssignWorkers{assignment, std::move(places.assigned)});
    }
    if (!places.launched.empty()) {
        node.effects.push_back(LaunchWorkers{assignment, std::move(places.launched)});
    }
    if (all_are_new && node.link.up) {
        node.link.heartbeat_at = now;
    }
}

void abandon(AgentState& node, RoundId round) {
    const auto* const next = std::get_if<Assignment>(&node.next);
    if (next != nullptr && next->round <= round) {
        node.next = std::monostate{};
    }
    if (round > node.report.round) {
        // This node has not run the round. Naming it in the report confirms that it never will.
        report_on(node, round);
        if (is_ready(node)) {
            node.report.state = NodeState::stopped;
        }
    }
}

void refuse(AgentState& node, RoundId round) {
    abandon(node, round);
    node.report.store_spent = true;
}

namespace {

// False if no worker has to leave the round.
bool enter_stopping(AgentState& node, Instant now) {
    if (node.report.state != NodeState::running) {
        return false;
    }
    node.report.state = NodeState::stopping;
    node.round.ended_at = std::min(node.round.ended_at, now);
    node.round.pausing = false;
    if (node.workers.all_out()) {
        return false;
    }
    node.report.at_work = Duration::zero();
    node.grace = {};
    node.grace.kill_at = after(now, node.config.policy.shutdown_timeout);
    return true;
}

}  // namespace

// Elastic workers are asked to suspend. The others end with the round.
void begin_stopping(AgentState& node, Instant now, const Cause& cause) {
    if (!enter_stopping(node, now)) {
        return;
    }
    if (node.leave.stage == LeaveStage::at_boundary || node.leave.stage == LeaveStage::saving) {
        // Some are saving already.
        node.grace.kill_at = std::max(node.grace.kill_at, node.leave.until);
    }
    order_workers(node, &cause);
}

// The round is not over for the workers: they still train, and may write checkpoints.
void begin_planned_stop(AgentState& node, Instant now, const Cause& cause) {
    if (!node.workers.all_stop()) {
        begin_stopping(node, now, cause);
    } else if (enter_stopping(node, now)) {
        node.round.is_agreed = true;
        node.workers.stop_at_agreed_step();
        if (node.leave.signal == 0) {
            ask_to_stop(node, now, cause);
        } else {
            node.grace.kill_at = std::min(node.grace.kill_at, node.leave.until);
        }
    }
}

namespace {

void begin_next(AgentState& node, Instant now) {
    const auto next = std::exchange(node.next, std::monostate{});
    if (std::holds_alternative<AgentState::Rejoin>(next) && node.link.up) {
        send_join(node, now);
        return;
    }
    if (const auto* const assignment = std::get_if<Assignment>(&next)) {
        if (!names_spent_store(node, *assignment)) {
            begin_round(node, now, *assignment);
            return;
        }
        refuse(node, assignment->round);
    }
    tell(node, now);
}

}  // namespace

void settle(AgentState& node, Instant now) {
    if (!node.workers.all_out()) {
        return;
    }
    if (!is_in_round(node)) {
        if (!node.workers.any_alive() && node.leave.stage >= LeaveStage::saving) {
            (void)leave_between_rounds(node, now);
        }
        return;
    }
    node.grace = {};
    node.round.pausing = false;
    node.round.ended_at = std::min(node.round.ended_at, now);
    if (!is_ready(node)) {
        return;
    }
    node.link.give_up_at = Instant::max();  // The next wait has the whole join timeout.
    // The training may have finished at this step boundary, or before the ranks could stop.
    const bool as_planned = node.round.is_agreed && !node.round.any_stopped && !node.report.failure;
    const bool finished = (node.report.state == NodeState::running || as_planned) &&
                          !node.workers.any_alive() && node.leave.saved == 0;
    node.report.state = finished ? NodeState::finished : NodeState::stopped;
    if (!leave_between_rounds(node, now)) {
        begin_next(node, now);
    }
}

}  // namespace regroup::agent::core
