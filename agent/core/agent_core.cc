// SPDX-License-Identifier: Apache-2.0
//
// The link, the daemon's messages, and time. Rounds are in agent_rounds.cc, workers in
// agent_workers.cc, leaving in agent_leaving.cc, reports of workers in agent_reports.cc.
#include "agent/core/agent_core.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/node_state.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// The daemon knows how long this node waits after a round. It closes the job, with a reason, before
// the node gives up.
constexpr Duration kVerdictMargin = std::chrono::seconds(1);
constexpr std::size_t kToldLimit = 32;
// A node that may not take part tells a daemon that it finds within this time.
constexpr Duration kFaultLimit = std::chrono::seconds(1);

}  // namespace

AgentCore::AgentCore(AgentConfig config, Instant now)
    : config_(std::move(config)), began_(now), workers_(config_.offer.workers) {
    config_.offer.join_timeout = config_.join_timeout;
    link_.give_up_at = after(after(now, config_.first_check_limit), config_.join_timeout);
}

AgentEffects AgentCore::step(Instant now, const AgentEvent& event) {
    if (!done()) {
        std::visit([&](const auto& e) { on(now, e); }, event);
        update_patience(now);
        update_recheck(now);
    }
    return std::exchange(effects_, {});
}

// ---- The link.

void AgentCore::on(Instant now, const LinkUp& /*event*/) {
    if (leaving()) {
        return;  // A join would make the daemon count on a node that is going away.
    }
    link_.up = true;
    link_.queued = false;
    link_.heard_at = now;
    link_.heartbeat_at = after(now, config_.policy.heartbeat_timeout / 3);
    // An assignment over an older connection no longer counts; the answer to this join does.
    next_ = std::monostate{};
    send_join(now);
    if (!fault_.empty()) {
        quit_unhealthy(now);
        return;
    }
    if (round_.resumed) {
        round_.resumed->ago = now - round_.resumed_at;
        effects_.push_back(SendToDaemon{*round_.resumed});
    }
}

void AgentCore::on(Instant /*now*/, const LinkDown& /*event*/) {
    link_.up = false;
    link_.heartbeat_at = Instant::max();
}

void AgentCore::on(Instant now, const Received& event) {
    link_.heard_at = now;
    link_.refusal.reset();
    std::visit([&](const auto& message) { handle(now, message); }, event.message);
}

void AgentCore::send_join(Instant now) {
    update_at_work(now);
    rendezvous::Join join{config_.job,   config_.node, config_.policy,
                          config_.offer, report_,      now - began_};
    if (round_.ended_at != Instant::max()) {
        join.report.ended_ago = now - round_.ended_at;
    }
    effects_.push_back(SendToDaemon{std::move(join)});
}

void AgentCore::tell(Instant now) {
    update_at_work(now);
    if (!link_.up) {
        return;
    }
    if (leave_.quit) {
        effects_.push_back(SendLeave{leave_.quit->reason});
    } else {
        effects_.push_back(SendToDaemon{rendezvous::Report{report_}});
    }
    link_.heartbeat_at = after(now, config_.policy.heartbeat_timeout / 3);
}

// The join timeout does not run while the node is connected and is a member or queued. A daemon
// that has refused the node counts only once it has answered something else.
void AgentCore::update_patience(Instant now) {
    const bool connected = link_.up && !link_.refusal;
    if (leaving() || (connected && (link_.queued || report_.state != NodeState::stopped))) {
        link_.give_up_at = Instant::max();
    } else if (link_.give_up_at == Instant::max()) {
        const bool after_round = link_.up && assignment().round != RoundId::none;
        link_.give_up_at = after(after(now, config_.join_timeout),
                                 after_round ? kVerdictMargin : Duration::zero());
    }
}

// A node may wait for days, and its GPUs may break meanwhile.
void AgentCore::update_recheck(Instant now) {
    const bool waits = config_.recheck_interval > Duration::zero() && part() == Part::standby;
    if (!waits) {
        recheck_at_ = Instant::max();
    } else if (recheck_at_ == Instant::max()) {
        recheck_at_ = after(now, config_.recheck_interval);
    }
}

// The join said that the node leaves, so that no round was formed with it.
void AgentCore::quit_unhealthy(Instant now) {
    quit(now, Quit{kExitUnhealthy, 0, {QuitCause::unhealthy, Unhealthy{fault_}}});
}

void AgentCore::give_up(Instant now) {
    if (!fault_.empty()) {
        quit_unhealthy(now);
        return;
    }
    Quit how{kExitNoRendezvous, 0, {}};
    how.reason.cause = link_.up ? QuitCause::no_round : QuitCause::no_rendezvous;
    how.reason.limit = config_.join_timeout;
    if (!link_.up && report_.state == NodeState::finished) {
        how.reason.succeeded = true;
        how.reason.alone = assignment().group_world_size == 1;
        how.exit_code = how.reason.alone ? 0 : kExitNoRendezvous;
    } else if (!link_.up && link_.refusal) {
        how.reason.cause = QuitCause::refused;
        how.reason.why = ToldByDaemon{*link_.refusal};
    }
    quit(now, std::move(how));
}

// ---- Messages of the daemon.

void AgentCore::handle(Instant now, const rendezvous::Assign& message) {
    const Assignment& assignment = message.assignment;
    if (assignment.round <= report_.round || leave_.stage >= Leave::Stage::saving) {
        return;
    }
    if (names_spent_store(assignment)) {
        refuse(assignment.round);
        begin_stopping(now, ToldByDaemon{assignment.reason});
        tell(now);
        return;
    }
    if (is_ready()) {
        begin_round(now, assignment);
        return;
    }
    const auto* const next = std::get_if<Assignment>(&next_);
    if (std::holds_alternative<std::monostate>(next_) ||
        (next != nullptr && next->round < assignment.round)) {
        next_ = assignment;
        begin_stopping(now, ToldByDaemon{assignment.reason});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Stop& message) {
    abandon(message.round);
    if (message.round == report_.round && report_.state == NodeState::running) {
        begin_stopping(now, ToldByDaemon{message.reason});
    } else {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::Prepare& message) {
    if (leave_.stage >= Leave::Stage::saving) {
        return;
    }
    const bool runs = message.round == report_.round && report_.state == NodeState::running;
    const ToldByDaemon why{message.reason};
    if (message.leave && report_.state == NodeState::finished) {
        quit(now, Quit{0, 0, {QuitCause::finished, why}});
    } else if (runs && message.leave && leave_.stage < Leave::Stage::at_boundary) {
        begin_leaving(now, Leave::Stage::at_boundary, why);
    } else if (runs && !message.leave && !std::exchange(round_.pausing, true)) {
        effects_.push_back(PauseWorkers{message.round, false, config_.policy.prepare_timeout, why});
    } else if (!runs && message.leave && report_.state == NodeState::stopped &&
               !message.if_running) {
        if (message.stale || !holds_state()) {
            leave_.why = why;
            quit_drained(now);
        } else {
            begin_leaving(now, Leave::Stage::saving, why);
        }
    } else if (!runs) {
        tell(now);
    }
}

void AgentCore::handle(Instant now, const rendezvous::SaveStacks& message) {
    if (message.round != report_.round || !workers_.any_alive() || message.alarm == report_.alarm) {
        tell(now);  // The daemon may not have received the answer.
        return;
    }
    round_.stacks_wanted = message;
    if (round_.stacks_being_saved == 0) {
        save_stacks();
    }
}

void AgentCore::handle(Instant now, const rendezvous::EndWorker& message) {
    const std::uint32_t local_rank = message.rank - assignment().first_rank;
    if (message.round != report_.round || message.rank < assignment().first_rank ||
        local_rank >= workers_.size() || !workers_[local_rank].in_round() ||
        workers_[local_rank].round != message.round) {
        tell(now);
        return;
    }
    Worker& worker = workers_[local_rank];
    if (!worker.hang) {  // The daemon repeats it until it hears of the end.
        worker.hang = message;
        worker.state = WorkerState::ending;
        effects_.push_back(KillWorker{local_rank, message.reason, message.by_silence});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Fenced& message) {
    if (const auto* const next = std::get_if<Assignment>(&next_)) {
        abandon(next->round);
    }
    if (leaving()) {
        return;
    }
    if (is_ready()) {
        report_.state = NodeState::stopped;
        send_join(now);
    } else {
        next_ = Rejoin{};
        begin_stopping(now, ToldByDaemon{message.reason});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Dismissed& message) {
    if (message.round == report_.round && report_.state == NodeState::finished &&
        !config_.stays_until_closed) {
        quit(now, Quit{0, 0, {QuitCause::finished}});
    }
}

void AgentCore::handle(Instant now, const rendezvous::Waiting& message) {
    link_.queued = message.standby;
    ahead_.wanted = message.prestart;
    // A finished node whose round the others must repeat can be a standby.
    if (keeps_ahead() && ahead_.again_at == Instant::max()) {
        prestart(now);
    }
}

bool AgentCore::waits_out(const rendezvous::Refused& refused) const {
    const bool has_room_later = refused.code == Errc::overloaded;
    // A daemon that came in place of another one may refuse what that one accepted, such as the
    // version or the token. The workers do not need it, and the next one may accept the node again.
    const bool was_accepted = report_.state != NodeState::stopped || holds_state();
    return !leaving() && (has_room_later || was_accepted);
}

void AgentCore::handle(Instant now, const rendezvous::Refused& message) {
    if (waits_out(message)) {
        // Its end of the connection is the same as a broken one.
        link_.refusal = message.reason;
        on(now, LinkDown{});
        return;
    }
    const int code = message.code == Errc::invalid_argument ? kExitUsage : kExitNoRendezvous;
    quit(now, Quit{code, 0, {QuitCause::refused, ToldByDaemon{message.reason}}});
}

void AgentCore::handle(Instant /*now*/, const rendezvous::Recovered& message) {
    // The recovery of an older round comes with that of its successor.
    const bool keep = message.incident.next_round <= report_.round &&
                      assignment().round == report_.round && assignment().group_rank == 0;
    // The daemon repeats a recovery that was not acknowledged in time.
    if (std::find(told_.begin(), told_.end(), message.incident) == told_.end()) {
        effects_.push_back(TellRecovery{message.incident, keep});
        told_.push_back(message.incident);
        if (told_.size() > kToldLimit) {
            told_.pop_front();
        }
    }
    if (round_.resumed && message.incident.next_round == round_.resumed->round) {
        round_.resumed.reset();
    }
}

void AgentCore::handle(Instant now, const rendezvous::Closed& message) {
    const rendezvous::Verdict& verdict = message.verdict;
    Quit how{verdict.exit_code, 0, {}, verdict};
    if (verdict.outcome != rendezvous::Outcome::succeeded && how.exit_code == 0) {
        how.exit_code = kExitJobFailed;  // Code 0 says that the job has succeeded.
    }
    if (message.missed && assignment().round == RoundId::none) {
        how.exit_code = kExitNoRendezvous;  // The end of that job is not the end of this node's.
        how.reason.cause = QuitCause::missed;
    } else if (how.exit_code == 0 && assignment().round == RoundId::none &&
               config_.policy.standbys_max == 0) {
        how.exit_code = kExitNoRendezvous;  // Nobody has asked for a node that never runs.
    }
    // The verdict may be the only message about a drain of the whole job. A node that had to leave
    // saves its state however the job ends.
    const bool drained = verdict.exit_code == kExitRequeue;
    const bool saves = (drained || leave_.stage != Leave::Stage::member) && holds_state() &&
                       report_.state != NodeState::finished;
    if (leaving() || !saves) {
        quit(now, std::move(how));
        return;
    }
    if (leave_.stage != Leave::Stage::saving) {
        const Cause why = drained ? ToldByDaemon{verdict.reason} : why_leaving();
        begin_leaving(now, Leave::Stage::saving, why);
    }
    leave_.quit = std::move(how);
    tell(now);
}

void AgentCore::on(Instant now, const StoreOffered& event) {
    const bool changed = std::exchange(report_.store_port, event.port) != event.port;
    // While workers run, the next report is early enough. A waiting node can be assigned a round,
    // with its port, at any moment.
    if (changed && workers_.all_out() && !leaving()) {
        tell(now);
    }
}

bool AgentCore::may_serve_rendezvous(bool remembers) const {
    if (link_.up || leave_.stage != Leave::Stage::member) {
        return false;
    }
    const bool has_lost_peer = !report_.broken_links.empty() || assignment().member_serves;
    return remembers || report_.state == NodeState::stopped || (is_in_round() && has_lost_peer);
}

AgentCore::Part AgentCore::part() const {
    if (leaving()) {
        return Part::leaving;
    }
    const bool has_place = link_.up && assignment().round != RoundId::none && !link_.queued;
    if (report_.state != NodeState::stopped || has_place) {
        return Part::member;
    }
    return link_.up && link_.queued ? Part::standby : Part::none;
}

void AgentCore::on(Instant now, const RendezvousServed& event) {
    config_.stays_until_closed = true;
    config_.offer.hosts_rendezvous = true;
    config_.offer.ends_with_daemon = event.ends_with_daemon;
    link_.give_up_at = after(now, config_.join_timeout);
}

void AgentCore::on(Instant now, const NodeChecked& event) {
    if (round_.check == Round::Check::awaited) {
        round_.check = Round::Check::done;
    }
    const bool has_not_joined = !link_.up && report_.round == RoundId::none && !leaving();
    if (has_not_joined) {
        link_.give_up_at = after(now, config_.join_timeout);
    }
    if (event.fault.empty() || leave_.stage > Leave::Stage::asked) {
        settle(now);
        return;
    }
    fault_ = event.fault;
    if (link_.up || report_.round != RoundId::none) {
        quit_unhealthy(now);
    } else {
        report_.draining = fault_;
        link_.give_up_at = std::min(link_.give_up_at, after(now, kFaultLimit));
    }
}

// ---- Time.

AgentEffects AgentCore::advance(Instant now) {
    if (done()) {
        return {};
    }
    if (now >= link_.heartbeat_at) {
        tell(now);
    }
    if (link_.up && !leaving() && now >= after(link_.heard_at, config_.policy.heartbeat_timeout)) {
        effects_.push_back(DropLink{});
        on(now, LinkDown{});
    }
    if (now >= leave_deadline()) {
        go_on_leaving(now);
    }
    if (now >= grace_.tell_at) {
        grace_.tell_at = Instant::max();
        effects_.push_back(
            TellAtWork{report_.round, std::max(Duration::zero(), grace_.kill_at - now)});
    }
    if (now >= grace_.kill_at) {
        kill_workers(now);
    }
    if (now >= ahead_.again_at) {
        ahead_.again_at = Instant::max();
        if (keeps_ahead()) {
            prestart(now);
        }
    }
    if (now >= grace_.resist_at) {
        end_for_unkillable(now);
    } else if (now >= link_.give_up_at) {
        give_up(now);
    }
    if (now >= recheck_at_) {
        recheck_at_ = Instant::max();
        effects_.push_back(CheckNode{true});
    }
    update_patience(now);
    update_recheck(now);
    return std::exchange(effects_, {});
}

Instant AgentCore::next_deadline() const {
    if (done()) {
        return Instant::max();
    }
    const Instant silence = link_.up && !leaving()
                                ? after(link_.heard_at, config_.policy.heartbeat_timeout)
                                : Instant::max();
    return std::min({link_.heartbeat_at, silence, link_.give_up_at, leave_deadline(),
                     grace_.kill_at, grace_.tell_at, grace_.resist_at, ahead_.again_at,
                     recheck_at_});
}

}  // namespace regroup::agent
