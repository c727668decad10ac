// SPDX-License-Identifier: Apache-2.0
//
// How the node leaves its job: see LeaveStage.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/agent_state.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/node_state.h"

namespace regroup::agent::core {

using rendezvous::NodeState;

namespace {

// A second signal within this time is an echo of the first one.
constexpr Duration kEchoLimit = std::chrono::seconds(1);
constexpr Duration kEchoLimitOfKeyboard = std::chrono::milliseconds(200);
// After so long without the daemon, a leaving node saves what it has.
constexpr Duration kAwayLimit = std::chrono::seconds(10);

}  // namespace

bool would_drain(const AgentState& node) {
    if (is_quitting(node) || node.leave.signal != 0) {
        return false;
    }
    if (is_in_round(node) && node.workers.all_stop()) {
        return true;
    }
    if (!node.link.up) {
        // The workers agree on a step boundary among themselves.
        return is_in_round(node) ? node.report.elastic && node.workers.any_alive()
                                 : node.workers.any_holds_state();
    }
    // A standby does not train. But if it hosts the daemon, the training nodes end with it.
    if (node.config.offer.hosts_rendezvous && node.link.queued) {
        return true;
    }
    // Between two rounds the workers may have ended. The daemon knows which nodes have their state.
    const bool between = node.report.state == NodeState::stopped && has_run(node);
    return rendezvous::may_keep_state(node.report) &&
           (between || (is_in_round(node) && node.workers.any_alive()));
}

Cause why_leaving(const AgentState& node) {
    return node.leave.signal != 0 ? Cause{AskedBySignal{node.leave.signal}} : node.leave.why;
}

// ---- Quitting.

void finish(AgentState& node) {
    const bool has_saved = node.leave.saved > 0 && node.leave.failed == 0;
    if (node.leave.signal != 0 && has_saved && node.leave.quit->verdict &&
        node.leave.quit->exit_code == kExitRequeue &&
        node.leave.quit->reason.cause == QuitCause::job_closed) {
        // The verdict came first. It has the same meaning.
        node.leave.quit->reason = {QuitCause::drained, why_leaving(node)};
    }
    node.leave.stage = LeaveStage::done;
    node.effects.push_back(*node.leave.quit);
}

namespace {

void end_workers(AgentState& node, Instant now) {
    node.leave.stage = LeaveStage::ending;
    const Instant limit = after(now, node.config.policy.shutdown_timeout);
    node.grace.kill_at = std::min(node.grace.kill_at, limit);
    order_workers(node);
}

}  // namespace

void quit(AgentState& node, Instant now, Quit how) {
    if (is_quitting(node)) {
        return;
    }
    node.leave.quit = std::move(how);
    node.next = std::monostate{};
    tell(node, now);
    if (!node.workers.any_alive()) {
        finish(node);
        return;
    }
    if (node.report.state == NodeState::running) {
        node.report.state = NodeState::stopping;
    }
    node.grace.tell_at = Instant::max();
    end_workers(node, now);
}

void quit_drained(AgentState& node, Instant now) {
    quit(node, now, Quit{kExitRequeue, 0, {QuitCause::drained, why_leaving(node)}});
}

namespace {

void quit_unsaved(AgentState& node, Instant now, QuitReason reason) {
    const int signal = node.leave.signal;
    quit(node, now, Quit{signal != 0 ? 128 + signal : kExitJobFailed, signal, std::move(reason)});
}

void conclude_saving(AgentState& node, Instant now) {
    if (node.leave.failed == 0) {
        quit_drained(node, now);
    } else {
        quit_unsaved(node, now, {QuitCause::save_failed, why_leaving(node)});
    }
}

}  // namespace

// ---- Leaving with the state saved.

// Without a boundary each worker saves its own last step. During a commit these may differ by one.
void begin_leaving(AgentState& node, Instant now, LeaveStage stage, const Cause& why) {
    const bool at_once = stage == LeaveStage::saving;
    if (node.leave.stage < LeaveStage::at_boundary) {
        node.leave.saved = node.leave.failed = 0;  // Earlier failures belong to the round.
    }
    node.leave.stage = stage;
    node.leave.why = why;
    if (node.leave.signal == 0) {
        node.leave.until = after(now, node.config.policy.prepare_timeout);
    }
    const Duration left = std::max(Duration::zero(), node.leave.until - now);
    node.effects.push_back(PauseWorkers{node.report.round, true, left, why, at_once});
    if (!at_once) {
        node.round.pausing = true;
        return;
    }
    node.next = std::monostate{};
    if (node.report.state == NodeState::running) {
        begin_stopping(node, now, BoundaryMissed{});
    } else {
        order_workers(node);
    }
}

namespace {

// The workers have stopped at an agreed step, and only the daemon's word is missing.
bool has_stopped_in_order(const AgentState& node) {
    return node.leave.stage == LeaveStage::asked && node.report.state == NodeState::stopped &&
           !node.workers.any_alive() && node.leave.saved > 0 && node.leave.failed == 0;
}

}  // namespace

// After a signal, half of the time is for the answer of the daemon, and a quarter for saving
// without a step boundary. An absent daemon may return soon, and may know of a later state.
Instant leave_deadline(const AgentState& node) {
    const AgentState::Leave& leave = node.leave;
    const Duration time = node.config.policy.shutdown_timeout;
    if (leave.stage == LeaveStage::asked && leave.signal != 0) {
        if (has_stopped_in_order(node) && !node.link.up) {
            return node.link.heard_at;
        }
        if (node.report.state == NodeState::finished || !node.workers.any_can_save()) {
            return leave.until;
        }
        const Instant away_at =
            node.link.up ? Instant::max() : after(node.link.heard_at, kAwayLimit);
        return std::min(leave.until - time / 2, away_at);
    }
    if (leave.stage == LeaveStage::at_boundary && leave.signal != 0) {
        return leave.until - time / 4;
    }
    const bool saves = leave.stage == LeaveStage::at_boundary || leave.stage == LeaveStage::saving;
    return saves ? leave.until : Instant::max();
}

void go_on_leaving(AgentState& node, Instant now) {
    if (node.report.state == NodeState::finished) {
        quit(node, now, Quit{0, 0, {QuitCause::finished, why_leaving(node)}});
    } else if (node.leave.stage == LeaveStage::saving && is_quitting(node)) {
        end_workers(node, now);
    } else if (has_stopped_in_order(node)) {
        quit_drained(node, now);
    } else if (node.leave.stage == LeaveStage::saving || now >= node.leave.until) {
        QuitReason reason{QuitCause::save_timeout, why_leaving(node)};
        reason.limit = node.leave.signal != 0 ? node.config.policy.shutdown_timeout
                                              : node.config.policy.prepare_timeout;
        quit_unsaved(node, now, std::move(reason));
    } else if (node.leave.stage == LeaveStage::asked && node.report.state == NodeState::running) {
        begin_leaving(node, now, LeaveStage::at_boundary, why_leaving(node));
    } else {
        const bool was_running = node.report.state == NodeState::running;
        begin_leaving(node, now, LeaveStage::saving, why_leaving(node));
        if (was_running) {
            tell(node, now);
        }
    }
}

bool leave_between_rounds(AgentState& node, Instant now) {
    const bool any_alive = node.workers.any_alive();
    if (node.leave.stage == LeaveStage::at_boundary && node.leave.saved == 0) {
        node.leave.stage = LeaveStage::asked;  // The round ended before the boundary.
    }
    if (node.leave.stage <= LeaveStage::asked) {
        if (any_alive || node.link.up || node.leave.signal == 0 ||
            node.report.state == NodeState::finished) {
            return false;
        }
        // No daemon can say which other node has the state. Without a failure the workers have
        // saved it themselves.
        if (node.report.failure) {
            quit_unsaved(node, now, {QuitCause::ended_unsaved, why_leaving(node)});
        } else {
            quit_drained(node, now);
        }
    } else if (any_alive && node.leave.stage == LeaveStage::at_boundary) {
        begin_leaving(node, now, LeaveStage::saving, node.leave.why);  // Suspended workers, too.
        tell(node, now);
    } else if (any_alive && !is_quitting(node)) {
        tell(node, now);
    } else if (!any_alive && is_quitting(node)) {
        finish(node);
    } else if (!any_alive) {
        conclude_saving(node, now);
    }
    return true;
}

void handle(AgentState& node, Instant now, const QuitRequested& event) {
    const Duration echo_limit = event.signal == SIGINT ? kEchoLimitOfKeyboard : kEchoLimit;
    const bool is_echo = node.leave.asked_at != Instant::min() && !would_drain(node) &&
                         now < after(node.leave.asked_at, echo_limit);
    if (is_quitting(node)) {
        if (node.leave.asked_at == Instant::min()) {
            node.leave.asked_at = now;  // The workers, which had to leave before, keep their time.
        } else if (node.workers.any_alive() && node.grace.resist_at == Instant::max() && !is_echo) {
            node.leave.stage = LeaveStage::hurried;
            order_workers(node);
            node.grace.kill_at = now;  // advance() sends SIGKILL.
        }
        return;
    }
    if (is_draining(node) && is_echo) {
        return;
    }
    node.leave.asked_at = now;
    if (would_drain(node)) {
        node.report.draining = event.words;
        node.leave.signal = event.signal;
        node.leave.until = after(now, node.config.policy.shutdown_timeout);
        node.leave.stage = std::max(node.leave.stage, LeaveStage::asked);
        if (node.grace.in_user_code) {
            node.grace.kill_at = std::min(node.grace.kill_at, node.leave.until);
            node.grace.tell_at = Instant::max();
        }
        if (node.workers.all_stop()) {
            ask_to_stop(node, now, AskedBySignal{event.signal});  // Also without a daemon.
        }
        tell(node, now);
        return;
    }
    const AskedBySignal why{event.signal};
    if (node.report.state == NodeState::stopped && node.workers.any_alive() &&
        !node.workers.any_holds_state() && !is_draining(node)) {
        node.report.draining = event.words;
        node.leave.why = why;
        quit_drained(node, now);  // It has no state.
        return;
    }
    if (!is_in_round(node) && !node.workers.any_alive() && node.round.any_stopped) {
        node.report.draining = event.words;
        node.leave.why = why;
        quit_drained(node, now);  // A scheduler signals all processes, and the workers were first.
        return;
    }
    Quit how{128 + event.signal, event.signal, {QuitCause::asked, why}};
    if (node.report.state == NodeState::finished && !node.link.up &&
        node.round.assignment.group_world_size == 1) {
        how.exit_code = how.signal = 0;
        how.reason.succeeded = true;
    }
    quit(node, now, std::move(how));
}

}  // namespace regroup::agent::core
