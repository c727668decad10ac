// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore leaves: at once, or with its workers' state saved.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/agent_core.h"
#include "rendezvous/core/node_state.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// Within this of the first request, another is taken for its echo.
constexpr Duration kEchoLimit = std::chrono::seconds(1);
constexpr Duration kEchoLimitOfKeyboard = std::chrono::milliseconds(200);
// Who has not heard of the daemon for so long leaves with what it has.
constexpr Duration kAwayLimit = std::chrono::seconds(10);

}  // namespace

bool AgentCore::would_drain() const {
    if (quit_ || drain_signal_ != 0) {
        return false;
    }
    // A spare trains nothing, but if the rendezvous goes with it, so do those who train.
    const bool takes_job_along = config_.offer.hosts_rendezvous && spare_;
    const bool in_round =
        report_.state == NodeState::running || report_.state == NodeState::stopping;
    const bool has_state = rendezvous::may_keep_state(report_);
    if (!link_up_) {
        // The workers agree on a step boundary among themselves.
        return in_round ? report_.resident && !workers_.empty() : has_state && holds_state();
    }
    // Between two rounds its processes may be gone: the daemon knows who else has their state.
    const bool between = report_.state == NodeState::stopped && assignment_.round != RoundId::none;
    const bool in_it = in_round && !workers_.empty();
    return takes_job_along || (has_state && (between || in_it));
}

bool AgentCore::holds_state() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const auto& w) { return w.second.trained; });
}

void AgentCore::begin_drain(Instant now, int signal) {
    drain_signal_ = signal;
    drain_until_ = after(now, config_.policy.shutdown_timeout);
    if (report_.at_work != Duration::zero()) {
        // The others have parked, and must be able to save what they have.
        force_at_ = std::min(force_at_, drain_until_ - config_.policy.shutdown_timeout / 2);
        patience_until_ = Instant::max();
    }
    tell(now);
}

void AgentCore::on(Instant now, const QuitRequested& event) {
    const std::string why = "stopped by " + rendezvous::signal_name(event.signal);
    if (would_drain()) {
        quit_requested_at_ = now;
        report_.draining = why;
        begin_drain(now, event.signal);
        return;
    }
    const Duration echo_limit = event.signal == SIGINT ? kEchoLimitOfKeyboard : kEchoLimit;
    const bool is_echo =
        quit_requested_at_ != Instant::min() && now < after(quit_requested_at_, echo_limit);
    if (quit_) {
        if (has_workers() && resist_at_ == Instant::max() && !is_echo) {
            hurried_ = true;
            force_at_ = now;  // advance() does the rest.
        }
        return;
    }
    if (draining() && is_echo) {
        return;
    }
    quit_requested_at_ = now;
    const bool prestarted = report_.state == NodeState::stopped && !workers_.empty();
    if (prestarted && !holds_state() && !draining()) {
        report_.draining = why;
        leave(now);  // A place in the next round is all that it had.
        return;
    }
    const bool is_done =
        report_.state == NodeState::finished && !link_up_ && assignment_.group_world_size == 1;
    quit(now, is_done ? Quit{0, 0, why + "; the workers have succeeded", std::nullopt}
                      : Quit{128 + event.signal, event.signal, why, std::nullopt});
}

std::string AgentCore::drained_for() const {
    return "drained: " + (!report_.draining.empty() ? report_.draining : leave_reason_);
}

void AgentCore::leave(Instant now) {
    quit(now, Quit{kExitRequeue, 0, drained_for(), std::nullopt});
}

void AgentCore::quit(Instant now, Quit how) {
    if (quit_) {
        return;
    }
    // Who saves its state when the job is closed is not disturbed.
    departing_ = departing_ && how.verdict && !workers_.empty();
    if (departing_) {
        begin_stopping(now, leave_reason_);
        let_parked_leave(now);  // The job has ended: there will be no other round.
    } else {
        depart_until_ = Instant::max();
    }
    quit_ = std::move(how);
    patience_until_ = Instant::max();
    next_assignment_.reset();
    drain_until_ = Instant::max();
    tell(now);
    if (!has_workers()) {
        quit_sent_ = true;
        effects_.push_back(*quit_);
    } else if (!departing_) {
        end_workers(now, quit_->signal != 0 ? quit_->signal : SIGTERM);
    }
}

void AgentCore::give_up(Instant now) {
    const std::string within =
        " within " + format_duration(config_.join_timeout) + " (--join-timeout)";
    if (link_up_ || report_.state != NodeState::finished) {
        quit(now, Quit{kExitNoRendezvous, 0,
                       (link_up_ ? "no round was formed" : "no rendezvous was reached") + within,
                       std::nullopt});
    } else if (assignment_.group_world_size == 1) {
        quit(now, Quit{0, 0, "the workers have succeeded; no rendezvous was reached" + within,
                       std::nullopt});
    } else {
        quit(now, Quit{kExitNoRendezvous, 0,
                       "the workers of this node have succeeded, but no rendezvous was reached" +
                           within + " to learn of the other nodes'",
                       std::nullopt});
    }
}

// ---- Leaving with the state saved.

void AgentCore::depart(Instant now, const std::string& reason) {
    if (departing_) {
        return;
    }
    leave_reason_ = reason;
    if (!holds_state() && (outgoing_.empty() || passed_on_)) {
        leave(now);  // It trains nothing that could be saved.
        return;
    }
    departing_ = true;
    // In a round they may be short of the boundary, and the daemon knows whether there will be one.
    at_once_ = report_.state == NodeState::stopped;
    saved_ = unsaved_ = left_ = died_ = false;
    SignalWorkers idle{assignment_.round, SIGKILL, false, {}, true};
    for (auto& [local_rank, worker] : workers_) {
        if (!worker.trained) {
            worker.asked_by = SIGKILL;
            idle.local_ranks.push_back(local_rank);
        }
    }
    pausing_ = report_.state == NodeState::running;
    const Duration limit = drain_until_ != Instant::max()
                               ? std::max(Duration::zero(), drain_until_ - now)
                               : config_.policy.prepare_timeout;
    depart_until_ = after(now, limit);
    effects_.push_back(PauseWorkers{report_.round, true, limit, reason, at_once_});
    if (!idle.local_ranks.empty()) {
        effects_.push_back(std::move(idle));
    }
}

void AgentCore::let_parked_leave(Instant now) {
    if (departing_ && !std::exchange(at_once_, true)) {
        effects_.push_back(PauseWorkers{report_.round, true,
                                        std::max(Duration::zero(), depart_until_ - now),
                                        leave_reason_, true});
    }
}

bool AgentCore::forms_extra_round() const {
    return report_.state == NodeState::running && extra_round_ && report_.step == step_before_ &&
           !workers_.empty();
}

// Half of the time is for the round, and half for saving what there is without it. A daemon that is
// away may be back at once, and know of a later state.
Instant AgentCore::wait_until() const {
    const bool is_to_leave = draining() || !leave_reason_.empty();
    const bool parked = report_.state == NodeState::stopped && holds_state();
    const bool alone = !link_up_ && report_.state == NodeState::running &&
                       std::any_of(workers_.begin(), workers_.end(),
                                   [](const auto& w) { return w.second.elastic; });
    if (!is_to_leave || departing_ || quit_ || (!parked && !alone && !forms_extra_round())) {
        return Instant::max();
    }
    return std::min(
        (parked && !link_up_) || alone ? after(heard_at_, kAwayLimit) : Instant::max(),
        draining() ? drain_until_ - config_.policy.shutdown_timeout / 2 : Instant::max());
}

std::string AgentCore::reason_to_leave() const {
    return leave_reason_.empty() ? report_.draining : leave_reason_;
}

// Who has not parked and ends with success has left at the boundary, though the round may have been
// stopped for others that had yet to reach it. With one of them all were there, so that who has
// failed without parking has failed to save; else it died in its round, and the parked ones save
// what that has reached.
void AgentCore::count_departed(const Worker& worker, bool failed) {
    saved_ = saved_ || !failed;
    left_ = left_ || (!failed && !worker.parked);
    died_ = died_ || (failed && !worker.parked);
    unsaved_ = unsaved_ || (failed && worker.parked) || (left_ && died_);
}

void AgentCore::end_departure(Instant now, bool orderly) {
    departing_ = false;
    depart_until_ = Instant::max();
    const bool all_finished = !unfinished_ && !at_once_;
    if (orderly || all_finished || (saved_ && !unsaved_)) {
        leave(now);
        return;
    }
    const int signal = drain_signal_;
    quit(now, Quit{signal != 0 ? 128 + signal : kExitJobFailed, signal,
                   leave_reason_ + (unsaved_ ? "; a worker failed as it saved its state"
                                             : "; the round ended before the state was saved"),
                   std::nullopt});
}

// No daemon can say who else has the state, or be asked for another round.
void AgentCore::end_alone(Instant now) {
    if (!report_.failure) {
        leave(now);  // Its workers have seen to their state themselves.
        return;
    }
    quit(now,
         Quit{128 + drain_signal_, drain_signal_,
              report_.draining + "; the round ended before the state was saved", std::nullopt});
}

void AgentCore::cut_departure_short(Instant now) {
    depart_until_ = Instant::max();
    if (report_.state == NodeState::running) {
        // Its peers may be gone: then there is no boundary, and nobody else who would say so.
        begin_stopping(now, leave_reason_ + "; no step boundary was reached in time");
        tell(now);
        return;
    }
    departing_ = false;
    unsaved_ = true;
    if (quit_) {
        end_workers(now, SIGTERM);
    } else {
        const int signal = drain_signal_;
        quit(now, Quit{signal != 0 ? 128 + signal : kExitJobFailed, signal,
                       leave_reason_ + "; the workers have not saved their state in time",
                       std::nullopt});
    }
}

}  // namespace regroup::agent
