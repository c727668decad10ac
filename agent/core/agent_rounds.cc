// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore deals with its workers: rounds begin and end under them.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// SIGKILL is repeated this often, and given up after the limit (a process stuck in the kernel).
constexpr Duration kForceInterval = std::chrono::seconds(1);
constexpr Duration kResistLimit = std::chrono::seconds(10);
// Until workers that died ahead of a round are started again: doubled each time.
constexpr Duration kPrestartDelayMin = std::chrono::seconds(1);
constexpr Duration kPrestartDelayMax = std::chrono::seconds(60);

}  // namespace

bool AgentCore::has_workers() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.alive(); });
}

bool AgentCore::holds_state() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& w) { return w.holds_state(); });
}

bool AgentCore::is_suspended(std::uint32_t local_rank) const {
    return local_rank < workers_.size() && workers_[local_rank].alive() &&
           workers_[local_rank].is_out();
}

bool AgentCore::all_out() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& w) { return w.is_out(); });
}

bool AgentCore::is_in_round() const {
    return report_.state == NodeState::running || report_.state == NodeState::stopping;
}

Wanted AgentCore::wanted() const {
    if (leave_.stage >= Leave::Stage::ending) {
        return Wanted::end;
    }
    if (leave_.stage == Leave::Stage::saving) {
        return Wanted::save;
    }
    return report_.state == NodeState::stopping ? Wanted::out : Wanted::keep;
}

void AgentCore::order_workers(const Cause* cause) {
    const RoundId round = assignment().round;
    const bool quits_by_signal = leave_.quit && leave_.quit->signal != 0;
    EndRound end{round, {}, cause != nullptr ? *cause : Cause{}};
    SignalWorkers ask{round, quits_by_signal ? leave_.quit->signal : SIGTERM, false, {}};
    // A program's handler of SIGTERM, which ends its training in order, would only hold up the end
    // of a worker that trains nothing.
    SignalWorkers kill{round, SIGKILL, false, {}, true};
    for (std::uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        switch (next_order(worker, wanted())) {
            case Order::none:
                break;
            case Order::suspend:
                worker.state = WorkerState::suspending;
                end.local_ranks.push_back(local_rank);
                break;
            case Order::save:
                worker.state = WorkerState::saving;
                break;
            case Order::terminate:
                worker.state = WorkerState::ending;
                worker.signal = ask.signal;
                ask.local_ranks.push_back(local_rank);
                break;
            case Order::kill:
                worker.state = WorkerState::ending;
                worker.signal = SIGKILL;
                worker.round = RoundId::none;
                kill.local_ranks.push_back(local_rank);
                break;
        }
    }
    if (cause != nullptr) {
        // Also when nobody is to suspend: a page may say so to one that has yet to attach.
        effects_.push_back(std::move(end));
    }
    if (!ask.local_ranks.empty()) {
        report_.resident = false;
        effects_.push_back(std::move(ask));
    }
    if (!kill.local_ranks.empty()) {
        effects_.push_back(std::move(kill));
    }
}

// ---- Beginning.

// Everyone was told of a store that has served an earlier round and is closed: an old message from
// here had overtaken a newer one, or the daemon had not been heard when it gave out that round.
bool AgentCore::names_spent_store(const Assignment& assignment) const {
    return assignment.group_rank == 0 && assignment.master_port != report_.store_port;
}

void AgentCore::begin_round(Instant now, const Assignment& assignment) {
    ENSURE(all_out());
    round_ = Round{};
    round_.assignment = assignment;
    report_on(assignment.round);
    report_.state = NodeState::running;
    link_.queued = false;
    ahead_ = Ahead{};
    leave_.saved = leave_.failed = 0;
    if (leave_.signal == 0) {
        leave_.stage = Leave::Stage::member;  // The daemon says again whether it is to leave.
    }
    AssignWorkers assign{assignment, {}};
    LaunchWorkers launch{assignment, {}};
    for (std::uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        if (worker.alive()) {
            assign.local_ranks.push_back(local_rank);
        } else {
            worker.launched_in = assignment.round;
            launch.local_ranks.push_back(local_rank);
        }
        worker.state = WorkerState::training;
        worker.round = assignment.round;
    }
    // Workers that keep their processes say themselves when they train again. Of others this is
    // the end of the way back, or of the growth, which the next heartbeat would tell late.
    const bool all_are_new = assign.local_ranks.empty();
    effects_.push_back(BeginRound{assignment});
    if (!assign.local_ranks.empty()) {
        effects_.push_back(std::move(assign));
    }
    if (!launch.local_ranks.empty()) {
        effects_.push_back(std::move(launch));
    }
    if (all_are_new && link_.up) {
        tell(now);
    }
}

void AgentCore::report_on(RoundId round) {
    rendezvous::NodeReport report;
    report.round = round;
    report.state = report_.state;
    report.store_port = report_.store_port;
    report.resident = report_.resident;
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
        // This node never ran it; naming it in the report confirms that it never will.
        report_on(round);
        if (all_out()) {
            report_.state = NodeState::stopped;
        }
    }
}

void AgentCore::refuse(RoundId round) {
    abandon(round);
    report_.store_spent = true;
}

// ---- Ending.

// Workers that can suspend are asked to; the others end with the round.
void AgentCore::begin_stopping(Instant now, const Cause& cause) {
    if (report_.state != NodeState::running) {
        return;
    }
    report_.state = NodeState::stopping;
    round_.ended_at = std::min(round_.ended_at, now);
    round_.pausing = false;
    if (all_out()) {
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

void AgentCore::on(Instant now, const WorkerSuspended& event) {
    Worker& worker = workers_[event.local_rank];
    if (!worker.alive()) {
        return;
    }
    worker.elastic = true;
    update_resident(now);
    // The word of one that was started ahead may come after its place was given to it.
    if (event.round < worker.round) {
        return;
    }
    if (worker.state == WorkerState::ending) {
        // It is as good as gone, and what ends it from here on is nobody's failure, unless the
        // round hangs on it.
        if (!worker.hang || report_.state != NodeState::running) {
            report_.ended_step = std::max(report_.ended_step, event.step);
            worker.round = RoundId::none;
        }
        return;
    }
    if (worker.is_out()) {
        return;
    }
    worker.state = WorkerState::suspended;
    worker.step = event.step;
    // Some rank had heard that the round is to pause, and here the word was lost.
    round_.pausing =
        round_.pausing || (event.at_boundary && report_.state == NodeState::running);
    if (report_.state == NodeState::running && !round_.pausing) {
        // Its peers are out of reach, and that is the end of the round, whoever says so first.
        begin_stopping(now, PeersUnreachable{});
        if (!all_out()) {
            tell(now);
        }
    }
    order_workers();
    settle(now);
}

// Once the round is stopping, a worker that gives up and ends has only followed those that are
// lost, unless it had said otherwise.
std::optional<WorkerFailure> AgentCore::failure_in(const WorkerExited& exited) const {
    if (exited.local_rank >= workers_.size()) {
        return exited.failure;
    }
    const Worker& worker = workers_[exited.local_rank];
    std::optional<WorkerFailure> failure = exited.failure;
    if (worker.in_round() && worker.elastic && leave_.stage == Leave::Stage::member &&
        !exited.finished && exited.unfinished &&
        (report_.state == NodeState::running || exited.unfinished->announced)) {
        failure = exited.unfinished;
    }
    if (failure && worker.hang) {
        failure->kind = rendezvous::FailureKind::hang;
        failure->evidence = worker.hang->reason;
        failure->by_silence = worker.hang->by_silence;
    }
    return failure;
}

void AgentCore::on(Instant now, const WorkerExited& event) {
    Worker& worker = workers_[event.local_rank];
    if (!worker.alive() || worker.launched_in != event.round) {
        return;
    }
    const std::optional<WorkerFailure> failure = failure_in(event);
    const Worker lost = std::exchange(worker, Worker{});
    if (!has_workers()) {
        report_.held_step = 0;
    }
    if (leave_.stage != Leave::Stage::member && lost.round != RoundId::none) {
        // A worker that has finished leaves nothing to go on with, and has saved nothing. One that
        // is ended in its round has not failed to save.
        if (!failure && !event.finished) {
            ++leave_.saved;
        } else if (failure && (!lost.in_round() || leave_.stage == Leave::Stage::at_boundary)) {
            ++leave_.failed;
        }
    }
    if (lost.in_round()) {
        lose_member(now, lost, event, failure);
    } else {
        lose_waiting(now, lost);
    }
    settle(now);
}

void AgentCore::lose_member(Instant now, const Worker& lost, const WorkerExited& exited,
                            const std::optional<WorkerFailure>& failure) {
    if (lost.round == report_.round) {
        report_.ended_step = std::max(report_.ended_step, exited.step);
        report_.step = std::max(report_.step, exited.step);
    }
    if (!failure) {
        return;
    }
    if (report_.state == NodeState::running) {
        report_.failure = failure;
        begin_stopping(now, *failure);
        if (!all_out()) {
            tell(now);  // A failure is news; else the daemon hears when the last one is gone.
        }
    } else if (lost.round == report_.round && !was_stopped_by_us(lost, *failure) &&
               (!report_.failure || outranks(*failure, *report_.failure))) {
        // It ended by itself while we were stopping it; perhaps that is why we were told to.
        report_.failure = failure;
    }
    if (!all_out()) {
        replace_lost(now, lost);
    }
}

bool AgentCore::was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const {
    const bool forced = grace_.resist_at != Instant::max();
    return !worker.hang && !failure.announced &&
           (failure.signal == 0 || (worker.signal != 0 && failure.signal == worker.signal) ||
            (failure.signal == SIGKILL && forced));
}

void AgentCore::settle(Instant now) {
    if (!all_out()) {
        return;
    }
    if (!is_in_round()) {
        if (!has_workers() && leave_.stage >= Leave::Stage::saving) {
            go_on(now);
        }
        return;
    }
    grace_ = Grace{};
    round_.pausing = false;
    round_.ended_at = std::min(round_.ended_at, now);
    link_.give_up_at = Instant::max();  // What is to come has the whole time, from now.
    // A step boundary may have been the last one.
    const bool finished =
        report_.state == NodeState::running && !has_workers() && leave_.saved == 0;
    report_.state = finished ? NodeState::finished : NodeState::stopped;
    go_on(now);
}

void AgentCore::go_on(Instant now) {
    using Stage = Leave::Stage;
    const bool ended = report_.state == NodeState::stopped && !has_workers();
    if (leave_.quit) {
        if (!has_workers()) {
            finish();
        }
    } else if (leave_.stage == Stage::saving && !has_workers()) {
        conclude_saving(now);
    } else if (leave_.stage == Stage::at_boundary && leave_.saved > 0 && !has_workers()) {
        conclude_saving(now);
    } else if (leave_.stage == Stage::at_boundary && leave_.saved > 0) {
        begin_saving(now, leave_.why);  // Those that suspended follow those that have left.
        tell(now);
    } else if (leave_.stage == Stage::saving) {
        tell(now);
    } else if (leave_.stage == Stage::asked && ended && !link_.up && leave_.signal != 0) {
        // No daemon can say who else has the state. Without a failure the workers have seen to it.
        if (report_.failure) {
            quit_unsaved(now, {QuitCause::ended_unsaved, why_leaving()});
        } else {
            quit_drained(now);
        }
    } else {
        if (leave_.stage == Stage::at_boundary) {
            leave_.stage = Stage::asked;  // The round has ended before; the daemon decides again.
        }
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
}

void AgentCore::kill_workers(Instant now) {
    if (all_out() && !leaving()) {
        grace_.kill_at = Instant::max();
        return;
    }
    if (grace_.resist_at == Instant::max()) {
        grace_.resist_at = after(now, kResistLimit);
    }
    grace_.kill_at = after(now, kForceInterval);
    SignalWorkers kill{assignment().round, SIGKILL, leave_.hurried, {}};
    for (std::uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        if (!worker.is_out()) {
            worker.state = WorkerState::ending;
            worker.signal = worker.signal == 0 ? SIGKILL : worker.signal;
            kill.local_ranks.push_back(local_rank);
        }
    }
    if (!kill.local_ranks.empty()) {
        effects_.push_back(std::move(kill));
    }
}

void AgentCore::end_for_unkillable(Instant now) {
    const auto resisting = std::count_if(workers_.begin(), workers_.end(),
                                         [](const Worker& w) { return !w.is_out(); });
    QuitReason reason{QuitCause::workers_unkillable};
    reason.workers = static_cast<std::uint32_t>(resisting);
    quit(now, Quit{kExitJobFailed, 0, reason});
    leave_.quit->reason = reason;
    finish();
}

// ---- Workers that wait for a round.

void AgentCore::lose_waiting(Instant now, const Worker& lost) {
    bool is_news = false;
    const bool asked = lost.signal != 0;
    // The next round is formed by who has which state: that is told at once.
    if (lost.round != RoundId::none && !asked && all_out()) {
        report_.held_step = 0;
        for (const Worker& worker : workers_) {
            report_.held_step = std::max(report_.held_step, worker.step);
        }
        is_news = report_.held_step < lost.step;
    }
    if (!asked && keeps_ahead()) {
        prestart_later(now);
        // Whoever asks is told that they are being started.
        is_news = (!holds_state() && std::exchange(report_.resident, false)) || is_news;
    }
    if (is_news) {
        tell(now);
    }
}

bool AgentCore::keeps_ahead() const {
    return ahead_.wanted && !is_in_round() && leave_.stage < Leave::Stage::saving;
}

void AgentCore::prestart(Instant now) {
    PrestartWorkers start;
    for (std::uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
        if (!workers_[local_rank].alive()) {
            workers_[local_rank].state = WorkerState::idle;
            start.local_ranks.push_back(local_rank);
        }
    }
    if (!start.local_ranks.empty()) {
        ahead_.started_at = now;
        effects_.push_back(std::move(start));
    }
}

// A program that cannot wait, or finds no memory, is not started over and over.
void AgentCore::prestart_later(Instant now) {
    if (ahead_.again_at != Instant::max()) {
        return;
    }
    const bool lasted = ahead_.started_at != Instant::min() &&
                        now >= after(ahead_.started_at, kPrestartDelayMax);
    ahead_.delay = lasted
                       ? kPrestartDelayMin
                       : std::clamp(ahead_.delay * 2, kPrestartDelayMin, kPrestartDelayMax);
    ahead_.again_at = after(now, ahead_.delay);
}

// While its peers, which keep their processes, are still on their way out of the round.
void AgentCore::replace_lost(Instant now, const Worker& lost) {
    if (report_.state == NodeState::stopping && report_.resident && lost.elastic && lost.may_wait &&
        leave_.stage == Leave::Stage::member && expects_another_round()) {
        prestart(now);
    }
}

// The daemon knows only when all nodes have stopped. A program is not started for nothing.
bool AgentCore::expects_another_round() const {
    if (assignment().restart_count >= config_.policy.restarts_max) {
        return false;
    }
    if (!report_.failure) {
        return true;
    }
    const auto reaction = config_.policy.on_exit.find(shell_exit_code(*report_.failure));
    return report_.failure->kind != rendezvous::FailureKind::user_error &&
           (reaction == config_.policy.on_exit.end() ||
            reaction->second != rendezvous::Reaction::fail);
}

}  // namespace regroup::agent
