// SPDX-License-Identifier: Apache-2.0
//
// How rounds begin and end on the node of an AgentCore.
#include <algorithm>
#include <utility>

#include "agent/core/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

bool AgentCore::is_in_round() const {
    return report_.state == NodeState::running || report_.state == NodeState::stopping;
}

// A node that is about to leave does not wait for the check.
bool AgentCore::is_ready() const {
    const bool awaits_check =
        round_.check == Round::Check::awaited && leave_.stage <= Leave::Stage::asked;
    return workers_.all_out() && !awaits_check;
}

// ---- Beginning.

// The assignment may name a store of this node that served an earlier round and is closed: messages
// may overtake each other, or an earlier assignment may have been lost.
bool AgentCore::names_spent_store(const Assignment& assignment) const {
    return assignment.group_rank == 0 && assignment.master_port != report_.store_port;
}

void AgentCore::begin_round(Instant now, const Assignment& assignment) {
    ENSURE(is_ready());
    round_ = Round{};
    round_.assignment = assignment;
    report_on(assignment.round);
    report_.state = NodeState::running;
    link_.queued = false;
    ahead_ = Ahead{};
    leave_.saved = leave_.failed = 0;
    if (leave_.signal == 0) {
        leave_.stage = Leave::Stage::member;  // The daemon repeats whether the node must leave.
    }
    Workers::Places places = workers_.begin(assignment.round);
    // Elastic workers report when they train again. For other workers the recovery ends here, and
    // the next heartbeat would be late. The report follows when it is known that all could start.
    const bool all_are_new = places.assigned.empty();
    effects_.push_back(BeginRound{assignment});
    if (!places.assigned.empty()) {
        effects_.push_back(AssignWorkers{assignment, std::move(places.assigned)});
    }
    if (!places.launched.empty()) {
        effects_.push_back(LaunchWorkers{assignment, std::move(places.launched)});
    }
    if (all_are_new && link_.up) {
        link_.heartbeat_at = now;
    }
}

void AgentCore::report_on(RoundId round) {
    rendezvous::NodeReport report;
    report.round = round;
    report.state = report_.state;
    report.store_port = report_.store_port;
    report.elastic = report_.elastic;
    report.step = report_.step;
    report.held_step = report_.held_step;
    report.at_work = report_.at_work;
    report.draining = std::move(report_.draining);
    report_ = std::move(report);
}

void AgentCore::abandon(RoundId round) {
    const auto* const next = std::get_if<Assignment>(&next_);
    if (next != nullptr && next->round <= round) {
        next_ = std::monostate{};
    }
    if (round > report_.round) {
        // This node has not run the round. Naming it in the report confirms that it never will.
        report_on(round);
        if (is_ready()) {
            report_.state = NodeState::stopped;
        }
    }
}

void AgentCore::refuse(RoundId round) {
    abandon(round);
    report_.store_spent = true;
}

// ---- Ending.

// Elastic workers are asked to suspend. The others end with the round.
void AgentCore::begin_stopping(Instant now, const Cause& cause) {
    if (report_.state != NodeState::running) {
        return;
    }
    report_.state = NodeState::stopping;
    round_.ended_at = std::min(round_.ended_at, now);
    round_.pausing = false;
    if (workers_.all_out()) {
        return;
    }
    report_.at_work = Duration::zero();
    grace_ = Grace{};
    grace_.kill_at = after(now, config_.policy.shutdown_timeout);
    if (leave_.stage == Leave::Stage::at_boundary || leave_.stage == Leave::Stage::saving) {
        grace_.kill_at = std::max(grace_.kill_at, leave_.until);  // Some are saving already.
    }
    order_workers(&cause);
}

void AgentCore::settle(Instant now) {
    if (!workers_.all_out()) {
        return;
    }
    if (!is_in_round()) {
        if (!workers_.any_alive() && leave_.stage >= Leave::Stage::saving) {
            (void)leave_between_rounds(now);
        }
        return;
    }
    grace_ = Grace{};
    round_.pausing = false;
    round_.ended_at = std::min(round_.ended_at, now);
    if (!is_ready()) {
        return;
    }
    link_.give_up_at = Instant::max();  // The next wait has the whole join timeout.
    // The training may have finished at this step boundary.
    const bool finished =
        report_.state == NodeState::running && !workers_.any_alive() && leave_.saved == 0;
    report_.state = finished ? NodeState::finished : NodeState::stopped;
    if (!leave_between_rounds(now)) {
        begin_next(now);
    }
}

void AgentCore::begin_next(Instant now) {
    const auto next = std::exchange(next_, std::monostate{});
    if (std::holds_alternative<Rejoin>(next) && link_.up) {
        send_join(now);
        return;
    }
    if (const auto* const assignment = std::get_if<Assignment>(&next)) {
        if (!names_spent_store(*assignment)) {
            begin_round(now, *assignment);
            return;
        }
        refuse(assignment->round);
    }
    tell(now);
}

}  // namespace regroup::agent
