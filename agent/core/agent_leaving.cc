// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore leaves its job: see AgentCore::Leave.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/agent_core.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/node_state.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// A second signal within this time is an echo of the first one.
constexpr Duration kEchoLimit = std::chrono::seconds(1);
constexpr Duration kEchoLimitOfKeyboard = std::chrono::milliseconds(200);
// After so long without the daemon, a leaving node saves what it has.
constexpr Duration kAwayLimit = std::chrono::seconds(10);

}  // namespace

bool AgentCore::would_drain() const {
    if (leaving() || leave_.signal != 0) {
        return false;
    }
    if (!link_.up) {
        // The workers agree on a step boundary among themselves.
        return is_in_round() ? report_.elastic && workers_.any_alive() : holds_state();
    }
    // A standby does not train. But if it hosts the daemon, the training nodes end with it.
    if (config_.offer.hosts_rendezvous && link_.queued) {
        return true;
    }
    // Between two rounds the workers may have ended. The daemon knows which nodes have their state.
    const bool between = report_.state == NodeState::stopped && assignment().round != RoundId::none;
    return rendezvous::may_keep_state(report_) &&
           (between || (is_in_round() && workers_.any_alive()));
}

void AgentCore::on(Instant now, const QuitRequested& event) {
    const Duration echo_limit = event.signal == SIGINT ? kEchoLimitOfKeyboard : kEchoLimit;
    const bool is_echo = leave_.asked_at != Instant::min() && !would_drain() &&
                         now < after(leave_.asked_at, echo_limit);
    if (leaving() && leave_.asked_at == Instant::min()) {
        leave_.asked_at = now;  // The job had this node leave before; its workers have their time.
        return;
    }
    if (leaving()) {
        if (workers_.any_alive() && grace_.resist_at == Instant::max() && !is_echo) {
            leave_.stage = Leave::Stage::hurried;
            order_workers();
            grace_.kill_at = now;  // advance() sends SIGKILL.
        }
        return;
    }
    if (draining() && is_echo) {
        return;
    }
    leave_.asked_at = now;
    if (would_drain()) {
        report_.draining = event.words;
        leave_.signal = event.signal;
        leave_.until = after(now, config_.policy.shutdown_timeout);
        leave_.stage = std::max(leave_.stage, Leave::Stage::asked);
        if (grace_.in_user_code) {
            grace_.kill_at = std::min(grace_.kill_at, leave_.until);
            grace_.tell_at = Instant::max();
        }
        tell(now);
        return;
    }
    const AskedBySignal why{event.signal};
    if (report_.state == NodeState::stopped && workers_.any_alive() && !holds_state() &&
        !draining()) {
        report_.draining = event.words;
        leave_.why = why;
        quit_drained(now);  // It has no state.
        return;
    }
    Quit how{128 + event.signal, event.signal, {QuitCause::asked, why}};
    if (report_.state == NodeState::finished && !link_.up && assignment().group_world_size == 1) {
        how.exit_code = how.signal = 0;
        how.reason.succeeded = true;
    }
    quit(now, std::move(how));
}

AgentCore::Parting AgentCore::parting() const {
    Parting parting;
    for (std::uint32_t i = 0; i < workers_.size(); ++i) {
        const Worker& worker = workers_[i];
        parting.at_boundary +=
            leave_.stage == Leave::Stage::at_boundary && worker.state == WorkerState::training;
        parting.suspending += worker.state == WorkerState::suspending;
        parting.saving += worker.state == WorkerState::saving;
        parting.ending += worker.state == WorkerState::ending;
    }
    const bool saves = parting.at_boundary + parting.saving > 0;
    parting.kill_at = std::min(grace_.kill_at, saves ? leave_.until : Instant::max());
    return parting;
}

Cause AgentCore::why_leaving() const {
    return leave_.signal != 0 ? Cause{AskedBySignal{leave_.signal}} : leave_.why;
}

// ---- Leaving with the state saved.

// Without a boundary each worker saves its own last step. During a commit these may differ by one.
void AgentCore::begin_leaving(Instant now, Leave::Stage stage, const Cause& why) {
    const bool at_once = stage == Leave::Stage::saving;
    if (leave_.stage < Leave::Stage::at_boundary) {
        leave_.saved = leave_.failed = 0;  // Earlier failures belong to the round.
    }
    leave_.stage = stage;
    leave_.why = why;
    if (leave_.signal == 0) {
        leave_.until = after(now, config_.policy.prepare_timeout);
    }
    const Duration left = std::max(Duration::zero(), leave_.until - now);
    effects_.push_back(PauseWorkers{report_.round, true, left, why, at_once});
    if (!at_once) {
        round_.pausing = true;
        return;
    }
    next_ = std::monostate{};
    if (report_.state == NodeState::running) {
        begin_stopping(now, BoundaryMissed{});
    } else {
        order_workers();
    }
}

// After a signal, half of the time is for the answer of the daemon, and a quarter for saving
// without a step boundary. An absent daemon may return soon, and may know of a later state.
Instant AgentCore::leave_deadline() const {
    using Stage = Leave::Stage;
    const bool asked_by_signal = leave_.signal != 0;
    const Duration time = config_.policy.shutdown_timeout;
    switch (leave_.stage) {
        case Stage::asked:
            if (!asked_by_signal) {
                return Instant::max();
            }
            if (report_.state == NodeState::finished || !workers_.any_can_save()) {
                return leave_.until;
            }
            return link_.up ? leave_.until - time / 2
                            : std::min(leave_.until - time / 2, after(link_.heard_at, kAwayLimit));
        case Stage::at_boundary:
            return asked_by_signal ? leave_.until - time / 4 : leave_.until;
        case Stage::saving:
            return leave_.until;
        case Stage::member:
        case Stage::ending:
        case Stage::hurried:
        case Stage::done:
            return Instant::max();
    }
    return Instant::max();
}

void AgentCore::go_on_leaving(Instant now) {
    using Stage = Leave::Stage;
    if (report_.state == NodeState::finished) {
        quit(now, Quit{0, 0, {QuitCause::finished, why_leaving()}});
    } else if (leave_.stage == Stage::saving && leaving()) {
        leave_.stage = Stage::ending;
        grace_.kill_at = std::min(grace_.kill_at, after(now, config_.policy.shutdown_timeout));
        order_workers();
    } else if (leave_.stage == Stage::saving || now >= leave_.until) {
        QuitReason reason{QuitCause::save_timeout, why_leaving()};
        reason.limit =
            leave_.signal != 0 ? config_.policy.shutdown_timeout : config_.policy.prepare_timeout;
        quit_unsaved(now, std::move(reason));
    } else if (leave_.stage == Stage::asked && report_.state == NodeState::running) {
        begin_leaving(now, Stage::at_boundary, why_leaving());
    } else {
        const bool was_running = report_.state == NodeState::running;
        begin_leaving(now, Stage::saving, why_leaving());
        if (was_running) {
            tell(now);
        }
    }
}

bool AgentCore::leave_between_rounds(Instant now) {
    using Stage = Leave::Stage;
    const bool any_alive = workers_.any_alive();
    switch (leave_.stage) {
        case Stage::member:
            return false;
        case Stage::asked:
            if (any_alive || link_.up || leave_.signal == 0 ||
                report_.state == NodeState::finished) {
                return false;
            }
            // No daemon can say which other node has the state. Without a failure the workers have
            // saved it themselves.
            if (report_.failure) {
                quit_unsaved(now, {QuitCause::ended_unsaved, why_leaving()});
            } else {
                quit_drained(now);
            }
            return true;
        case Stage::at_boundary:
            if (leave_.saved == 0) {
                leave_.stage = Stage::asked;  // The round ended before the boundary.
                return leave_between_rounds(now);
            }
            if (any_alive) {
                // Suspended workers leave, too.
                begin_leaving(now, Stage::saving, leave_.why);
                tell(now);
            } else {
                conclude_saving(now);
            }
            return true;
        case Stage::saving:
        case Stage::ending:
        case Stage::hurried:
        case Stage::done:
            if (any_alive && !leave_.quit) {
                tell(now);
            } else if (!any_alive && leave_.quit) {
                finish();
            } else if (!any_alive) {
                conclude_saving(now);
            }
            return true;
    }
    return false;
}

void AgentCore::conclude_saving(Instant now) {
    if (leave_.failed == 0) {
        quit_drained(now);
    } else {
        quit_unsaved(now, {QuitCause::save_failed, why_leaving()});
    }
}

// ---- Quitting.

void AgentCore::quit_drained(Instant now) {
    quit(now, Quit{kExitRequeue, 0, {QuitCause::drained, why_leaving()}});
}

void AgentCore::quit_unsaved(Instant now, QuitReason reason) {
    const int signal = leave_.signal;
    quit(now, Quit{signal != 0 ? 128 + signal : kExitJobFailed, signal, std::move(reason)});
}

void AgentCore::quit(Instant now, Quit how) {
    if (leaving()) {
        return;
    }
    leave_.quit = std::move(how);
    leave_.stage = Leave::Stage::ending;
    next_ = std::monostate{};
    tell(now);
    if (!workers_.any_alive()) {
        finish();
        return;
    }
    if (report_.state == NodeState::running) {
        report_.state = NodeState::stopping;
    }
    grace_.tell_at = Instant::max();
    grace_.kill_at = std::min(grace_.kill_at, after(now, config_.policy.shutdown_timeout));
    order_workers();
}

void AgentCore::finish() {
    const bool has_saved = leave_.saved > 0 && leave_.failed == 0;
    if (leave_.signal != 0 && has_saved && leave_.quit->verdict &&
        leave_.quit->exit_code == kExitRequeue &&
        leave_.quit->reason.cause == QuitCause::job_closed) {
        // The verdict came first. It has the same meaning.
        leave_.quit->reason = {QuitCause::drained, why_leaving()};
    }
    leave_.stage = Leave::Stage::done;
    effects_.push_back(*leave_.quit);
}

}  // namespace regroup::agent
