// SPDX-License-Identifier: Apache-2.0
//
// The link, what the daemon says, and the passing of time; the workers are in
// agent_workers_core.cc and agent_overlap_core.cc, the ways to leave in agent_departure_core.cc.
#include "agent/agent_core.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/core/node_state.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// SIGKILL is repeated this often, and given up after the limit (a process stuck in the kernel).
constexpr Duration kForceInterval = std::chrono::seconds(1);
constexpr Duration kResistLimit = std::chrono::seconds(10);
// The daemon knows how long this node waits after a round, and closes the job, with the reason,
// before it gives up by itself.
constexpr Duration kVerdictMargin = std::chrono::seconds(1);

}  // namespace

AgentCore::AgentCore(AgentConfig config, Instant now)
    : config_(std::move(config)),
      heartbeat_interval_(config_.policy.heartbeat_timeout / 3),
      give_up_at_(after(now, config_.join_timeout)) {
    config_.offer.join_timeout = config_.join_timeout;
}

AgentEffects AgentCore::step(Instant now, const AgentEvent& event) {
    if (!quit_sent_) {
        std::visit([&](const auto& e) { on(now, e); }, event);
        update_patience(now);
    }
    return std::exchange(effects_, {});
}

// ---- The link.

void AgentCore::on(Instant now, const LinkUp& /*event*/) {
    if (quit_) {
        return;  // A join would make the daemon count on a node that is going away.
    }
    link_up_ = true;
    heard_at_ = now;
    heartbeat_at_ = after(now, heartbeat_interval_);
    rejoin_ = false;
    spare_ = false;
    // An older connection's promise: the answer to this join is the truth.
    next_assignment_.reset();
    send_join(now);
    if (resumed_) {
        resumed_->ago = now - resumed_at_;
        effects_.push_back(SendToDaemon{*resumed_});
    }
}

void AgentCore::on(Instant /*now*/, const LinkDown& /*event*/) {
    link_up_ = false;
    heartbeat_at_ = Instant::max();
}

void AgentCore::on(Instant now, const Received& event) {
    heard_at_ = now;
    std::visit([&](const auto& message) { handle(now, message); }, event.message);
}

void AgentCore::send_join(Instant now) {
    update_uneven();
    update_at_work(now);
    report_.ended_ago = ended_at_ == Instant::max() ? Duration::zero() : now - ended_at_;
    effects_.push_back(SendToDaemon{
        rendezvous::Join{config_.job, config_.node, config_.policy, config_.offer, report_}});
    report_.ended_ago = Duration::zero();
}

void AgentCore::tell(Instant now) {
    update_at_work(now);
    if (!link_up_) {
        return;
    }
    if (quit_) {
        effects_.push_back(SendToDaemon{rendezvous::Leave{quit_->reason}});
    } else {
        update_uneven();
        effects_.push_back(SendToDaemon{rendezvous::Report{report_}});
    }
    heartbeat_at_ = after(now, heartbeat_interval_);
}

// Content is who has a round, or a place in the queue for one, and a daemon.
void AgentCore::update_patience(Instant now) {
    const bool content = quit_ || (link_up_ && (spare_ || report_.state != NodeState::stopped));
    if (content) {
        give_up_at_ = Instant::max();
    } else if (give_up_at_ == Instant::max()) {
        const bool after_round = link_up_ && assignment_.round != RoundId::none;
        give_up_at_ = after(after(now, config_.join_timeout),
                            after_round ? kVerdictMargin : Duration::zero());
    }
}

// ---- What the daemon says.

void AgentCore::handle(Instant now, const rendezvous::Assign& message) {
    const Assignment& assignment = message.assignment;
    const bool saves = departing_ && report_.state == NodeState::stopped;
    if (assignment.round <= report_.round || quit_ || saves) {
        return;
    }
    if (names_spent_store(assignment)) {
        refuse(now, assignment.round);
        begin_stopping(now, assignment.reason);  // What runs here is over, too.
        tell(now);
        return;
    }
    if (settled()) {
        begin_round(now, assignment);
    } else if (!next_assignment_ || next_assignment_->round < assignment.round) {
        next_assignment_ = assignment;
        begin_stopping(now, assignment.reason);
        await_outgoing(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Stop& message) {
    abandon(now, message.round);
    if (message.round == report_.round && report_.state == NodeState::running) {
        begin_stopping(now, message.reason);
    } else {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Prepare& message) {
    if (quit_) {
        return;
    }
    if (message.round == report_.round && report_.state == NodeState::running) {
        if (message.leave) {
            depart(now, message.reason);
        } else if (!std::exchange(pausing_, true)) {
            effects_.push_back(
                PauseWorkers{message.round, false, config_.policy.prepare_timeout, message.reason});
        }
    } else if (message.leave && report_.state == NodeState::finished) {
        quit(now,
             Quit{0, 0, message.reason + "; all workers of this node have finished", std::nullopt});
    } else if (message.leave && message.if_running && report_.state == NodeState::stopped) {
        tell(now);
    } else if (message.leave && message.stale && report_.state == NodeState::stopped &&
               !departing_) {
        leave_reason_ = message.reason;
        leave(now);
    } else if (message.leave &&
               (report_.state == NodeState::stopped || message.round == report_.round)) {
        depart(now, message.reason);  // The word was late: its workers park, or have parked.
    } else {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::SaveStacks& message) {
    if (message.round == report_.round && !workers_.empty()) {
        if (message.alarm == report_.alarm) {
            tell(now);  // The answer was lost, or is on its way.
            return;
        }
        stacks_wanted_ = message.alarm;
        stacks_reason_ = message.reason;
        if (stacks_being_saved_ == 0) {
            save_stacks();
        }
    } else {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::EndWorker& message) {
    const std::uint32_t local_rank = message.rank - assignment_.first_rank;
    const auto worker = workers_.find(local_rank);
    if (message.round != report_.round || message.rank < assignment_.first_rank ||
        worker == workers_.end() || worker->second.round != message.round) {
        tell(now);
        return;
    }
    if (worker->second.hung.empty()) {  // It is said again until the end is heard of.
        worker->second.hung = message.reason;
        worker->second.hung_by_silence = message.by_silence;
        effects_.push_back(KillWorker{local_rank, message.reason, message.by_silence});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Fenced& message) {
    if (next_assignment_) {
        abandon(now, next_assignment_->round);
    }
    if (quit_) {
        return;
    }
    if (settled()) {
        report_.state = NodeState::stopped;
        send_join(now);
    } else {
        rejoin_ = true;
        begin_stopping(now, message.reason);
        await_outgoing(now);
    }
}

void AgentCore::abandon(Instant now, RoundId round) {
    if (next_assignment_ && next_assignment_->round <= round) {
        next_assignment_.reset();
    }
    if (round > report_.round) {
        // This node never ran it; naming it in the report confirms that it never will.
        report_.round = round;
        forget_round();
        if (settled()) {
            report_.state = NodeState::stopped;
        } else if (report_.state == NodeState::finished) {
            report_.state = NodeState::stopping;  // It was the round before that has finished.
            await_outgoing(now);
        }
    }
}

void AgentCore::handle(Instant now, const rendezvous::Dismissed& message) {
    if (message.round == report_.round && report_.state == NodeState::finished &&
        !config_.stays_until_closed) {
        quit(now, Quit{0, 0, "all workers of this node have finished", std::nullopt});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Waiting& message) {
    spare_ = message.spare;
    ahead_wanted_ = message.prestart;
    // Who has finished in a round that the others have to repeat is a spare as any.
    if (!keeps_ahead()) {
        return;
    }
    if (may_prestart_) {
        prestart(now);
    } else {
        prestart_later(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Refused& message) {
    const int code = message.code == Errc::invalid_argument ? kExitUsage : kExitNoRendezvous;
    quit(now, Quit{code, 0, "refused by the rendezvous: " + message.reason, std::nullopt});
}

void AgentCore::handle(Instant /*now*/, const rendezvous::Recovered& message) {
    // An older round's comes with that of the round that took its place.
    const bool keep = message.incident.next_round <= report_.round &&
                      assignment_.round == report_.round && assignment_.group_rank == 0;
    // What was not acknowledged in time is told again.
    if (std::find(told_.begin(), told_.end(), message.incident) == told_.end()) {
        effects_.push_back(TellRecovery{message.incident, keep});
        told_.push_back(message.incident);
        if (told_.size() > kToldLimit) {
            told_.pop_front();
        }
    }
    if (resumed_ && message.incident.next_round == resumed_->round) {
        resumed_.reset();
    }
}

void AgentCore::handle(Instant now, const rendezvous::Closed& message) {
    // It may be all that is heard of a drain of the whole job.
    const bool drained = message.verdict.exit_code == kExitRequeue;
    // Who was to leave, and had parked before, saves its state however the job ends.
    const bool was_to_leave =
        report_.state == NodeState::stopped && (draining() || !leave_reason_.empty());
    if ((drained || was_to_leave) && !quit_ && rendezvous::may_keep_state(report_) &&
        report_.state != NodeState::finished) {
        depart(now, drained ? message.verdict.reason : reason_to_leave());
    }
    quit(now, Quit{message.verdict.exit_code, 0, "", message.verdict});
}

void AgentCore::on(Instant now, const StoreOffered& event) {
    const bool changed = std::exchange(report_.store_port, event.port) != event.port;
    // While workers run, the next report is early enough; a waiting node may be assigned a round
    // at any moment, and the port with it.
    if (changed && settled() && !quit_) {
        tell(now);
    }
}

// ---- The passing of time.

AgentEffects AgentCore::advance(Instant now) {
    if (quit_sent_) {
        return {};
    }
    if (now >= heartbeat_at_) {
        tell(now);
    }
    if (link_up_ && !quit_ && now >= after(heard_at_, config_.policy.heartbeat_timeout)) {
        effects_.push_back(DropLink{});
        on(now, LinkDown{});
    }
    if (now >= drain_until_ && !quit_ && report_.state == NodeState::finished) {
        quit(now, Quit{0, 0, report_.draining + "; all workers of this node have finished",
                       std::nullopt});
    }
    if (now >= drain_until_ && !quit_) {
        const std::string limit = format_duration(config_.policy.shutdown_timeout);
        quit(now, Quit{128 + drain_signal_, drain_signal_,
                       report_.draining + "; no state was saved at a step boundary within " +
                           limit + " (--shutdown-timeout)",
                       std::nullopt});
    }
    if (now >= wait_until()) {
        const bool forms = forms_extra_round();
        depart(now, reason_to_leave());
        if (forms) {
            let_parked_leave(now);
            begin_stopping(now, leave_reason_ + "; the round has committed no step in time");
            tell(now);
        }
    }
    if (now >= depart_until_) {
        cut_departure_short(now);
    }
    if (now >= patience_until_) {
        patience_until_ = Instant::max();
        effects_.push_back(TellAtWork{report_.round, std::max(Duration::zero(), force_at_ - now)});
    }
    if (now >= force_at_ && !settled()) {
        if (resist_at_ == Instant::max()) {
            resist_at_ = after(now, kResistLimit);
        }
        force_at_ = after(now, kForceInterval);
        SignalWorkers kill{assignment_.round, SIGKILL, hurried_, {}};
        for (auto& [local_rank, worker] : workers_) {
            if (!worker.parked || quit_) {
                worker.asked_by = worker.asked_by == 0 ? SIGKILL : worker.asked_by;
                kill.local_ranks.push_back(local_rank);
            }
        }
        if (!kill.local_ranks.empty()) {
            effects_.push_back(std::move(kill));
        }
        kill_outgoing();
    }
    if (now >= outgoing_force_at_) {
        kill_outgoing();
    }
    if (now >= prestart_at_) {
        prestart_at_ = Instant::max();
        if (keeps_ahead()) {
            may_prestart_ = true;
            prestart(now);
        }
    }
    if (now >= resist_at_) {
        const auto resisting = std::count_if(workers_.begin(), workers_.end(), [&](const auto& w) {
            return !w.second.parked || quit_;
        });
        const std::string reason =
            std::to_string(static_cast<std::size_t>(resisting) + outgoing_.size()) +
            " worker(s) did not end even after SIGKILL; they are probably "
            "stuck in the kernel";
        quit(now, Quit{kExitJobFailed, 0, reason, std::nullopt});
        quit_->reason = reason;
        quit_sent_ = true;
        effects_.push_back(*quit_);
    } else if (now >= give_up_at_) {
        give_up(now);
    }
    update_patience(now);
    return std::exchange(effects_, {});
}

Instant AgentCore::next_deadline() const {
    if (quit_sent_) {
        return Instant::max();
    }
    const Instant silence =
        link_up_ && !quit_ ? after(heard_at_, config_.policy.heartbeat_timeout) : Instant::max();
    return std::min({heartbeat_at_, silence, force_at_, patience_until_, resist_at_,
                     outgoing_force_at_, prestart_at_, give_up_at_, drain_until_, wait_until(),
                     depart_until_});
}

}  // namespace regroup::agent
