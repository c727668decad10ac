// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore gives orders to its workers and judges their ends.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/agent_core.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// SIGKILL is repeated at this interval, up to a limit: a process may be stuck in the kernel.
constexpr Duration kForceInterval = std::chrono::seconds(1);
constexpr Duration kResistLimit = std::chrono::seconds(10);
// The daemon hears within this time that a worker has ended with success and others go on.
constexpr Duration kFinishedLimit = std::chrono::seconds(1);
// Delay before workers that died ahead of a round are started again. It doubles each time.
constexpr Duration kPrestartDelayMin = std::chrono::seconds(1);
constexpr Duration kPrestartDelayMax = std::chrono::seconds(60);

}  // namespace

bool AgentCore::is_suspended(std::uint32_t local_rank) const {
    return local_rank < workers_.size() && workers_[local_rank].alive() &&
           workers_[local_rank].is_out();
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
    const bool by_signal = leave_.quit && leave_.quit->signal != 0;
    const int signal = by_signal ? leave_.quit->signal : SIGTERM;
    Workers::Orders orders = workers_.order(wanted(), signal);
    if (cause != nullptr) {
        // Also without workers to suspend: a worker that has yet to attach reads its page.
        effects_.push_back(EndRound{round, std::move(orders.suspended), *cause});
    }
    if (!orders.terminated.empty()) {
        report_.elastic = false;
        effects_.push_back(SignalWorkers{round, signal, false, std::move(orders.terminated)});
    }
    if (!orders.killed.empty()) {
        effects_.push_back(SignalWorkers{round, SIGKILL, false, std::move(orders.killed), true});
    }
}

// ---- Ends of workers.

void AgentCore::on(Instant now, const WorkerSuspended& event) {
    Worker& worker = workers_[event.local_rank];
    if (!worker.alive()) {
        return;
    }
    worker.elastic = true;
    update_elastic(now);
    // A worker that was started ahead may send this after it was assigned.
    if (event.round < worker.round) {
        return;
    }
    if (worker.state == WorkerState::ending) {
        // The worker is about to end by our order, so its end is no failure, unless the round hangs
        // on it.
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
    // Another rank knew of the change, and the message to this node was lost.
    round_.pausing = round_.pausing || (event.at_boundary && report_.state == NodeState::running);
    if (report_.state == NodeState::running && !round_.pausing) {
        // Its peers are lost, so the round is over.
        begin_stopping(now, PeersUnreachable{});
        if (!workers_.all_out()) {
            tell(now);
        }
    }
    order_workers();
    settle(now);
}

// In a stopping round, the end of a worker follows from the earlier loss, unless the worker
// announced a failure.
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
        failure->evidence = worker.hang->reason.text;
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
    if (!workers_.any_alive()) {
        report_.held_step = 0;
    }
    if (leave_.stage != Leave::Stage::member && lost.round != RoundId::none) {
        // Count only ends of workers that had to save: not of finished ones, and not of failures
        // before the node had to leave.
        if (!failure && !event.finished) {
            ++leave_.saved;
        } else if (failure && (!lost.in_round() || leave_.stage == Leave::Stage::at_boundary ||
                               leave_.stage == Leave::Stage::saving)) {
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
        note_finished(now, lost, exited);
        return;
    }
    judge(now, lost, *failure);
    if (!workers_.all_out()) {
        replace_lost(now, lost);
    }
}

void AgentCore::judge(Instant now, const Worker& lost, const WorkerFailure& failure) {
    if (report_.state == NodeState::running) {
        report_.failure = failure;
        check_node(now);
        begin_stopping(now, failure);
        if (!is_ready()) {
            tell(now);  // Report a failure at once; else the daemon hears when the node is ready.
        }
    } else if (lost.round == report_.round && !was_stopped_by_us(lost, failure) &&
               (!report_.failure || outranks(failure, *report_.failure))) {
        // It ended by itself while we stopped it. Its failure may be the cause of the stop.
        report_.failure = failure;
        check_node(now);
    }
}

// A worker that nobody asked to end has failed; what is left of it counts as asked. A worker that
// waits for a round has nothing to save.
void AgentCore::on(Instant now, const WorkerEnding& event) {
    Worker& worker = workers_[event.local_rank];
    if (!worker.alive() || worker.launched_in != event.round ||
        worker.state == WorkerState::ending || worker.state == WorkerState::saving ||
        !event.failure) {
        return;
    }
    if (!worker.in_round()) {
        effects_.push_back(
            SignalWorkers{assignment().round, SIGKILL, false, {event.local_rank}, true});
        return;
    }
    const Worker lost = worker;
    worker.state = WorkerState::ending;
    worker.signal = event.failure->signal;
    judge(now, lost, *event.failure);
}

// Usually the other workers end at once too, and the node reports that it has finished. Otherwise
// the next heartbeat says it, which comes soon.
void AgentCore::note_finished(Instant now, const Worker& lost, const WorkerExited& exited) {
    if (lost.round == report_.round && report_.state == NodeState::running &&
        leave_.stage == Leave::Stage::member) {
        report_.finished.add(assignment().first_rank + exited.local_rank);
        if (link_.up) {
            link_.heartbeat_at = std::min(link_.heartbeat_at, after(now, kFinishedLimit));
        }
    }
}

// A leaving node takes part in no further round.
void AgentCore::check_node(Instant now) {
    if (config_.health_limit > Duration::zero() && leave_.stage == Leave::Stage::member &&
        round_.check == Round::Check::none) {
        round_.check = Round::Check::awaited;
        round_.check_until = after(now, config_.health_limit);
        effects_.push_back(CheckNode{});
    }
}

bool AgentCore::was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const {
    const bool forced = grace_.resist_at != Instant::max();
    // A worker that ends with an error about a rank that did not come had it before we stopped it.
    const bool awaited = failure.peer_error == rendezvous::PeerError::awaited;
    return !worker.hang && !failure.announced &&
           ((failure.signal == 0 && !awaited) ||
            (worker.signal != 0 && failure.signal == worker.signal) ||
            (failure.signal == SIGKILL && forced));
}

void AgentCore::kill_workers(Instant now) {
    if (grace_.resist_at == Instant::max()) {
        grace_.resist_at = after(now, kResistLimit);
    }
    grace_.kill_at = after(now, kForceInterval);
    const bool hurried = leave_.stage == Leave::Stage::hurried;
    SignalWorkers kill{assignment().round, SIGKILL, hurried, workers_.force()};
    if (!kill.local_ranks.empty()) {
        effects_.push_back(std::move(kill));
    }
}

void AgentCore::end_for_unkillable(Instant now) {
    QuitReason reason{QuitCause::workers_unkillable};
    reason.workers = static_cast<std::uint32_t>(workers_.force().size());
    quit(now, Quit{kExitJobFailed, 0, reason});
    leave_.quit->reason = reason;
    finish();
}

// ---- Workers that wait for a round.

void AgentCore::lose_waiting(Instant now, const Worker& lost) {
    bool is_news = false;
    const bool asked = lost.signal != 0;
    // The daemon forms the next round by the states of the nodes, so report the change at once.
    if (lost.round != RoundId::none && !asked && workers_.all_out()) {
        report_.held_step = workers_.held_step();
        is_news = report_.held_step < lost.step;
    }
    if (!asked && keeps_ahead()) {
        prestart_later(now);
        // regroup status shows that the workers are being started.
        is_news = (!workers_.any_holds_state() && std::exchange(report_.elastic, false)) || is_news;
    }
    if (is_news) {
        tell(now);
    }
}

bool AgentCore::keeps_ahead() const {
    return ahead_.wanted && !is_in_round() && leave_.stage < Leave::Stage::saving;
}

void AgentCore::prestart(Instant now) {
    PrestartWorkers start{workers_.start_ahead()};
    if (!start.local_ranks.empty()) {
        ahead_.started_at = now;
        effects_.push_back(std::move(start));
    }
}

// A program that fails at once, for example without memory, is not started again immediately.
void AgentCore::prestart_later(Instant now) {
    if (ahead_.again_at != Instant::max()) {
        return;
    }
    const bool lasted =
        ahead_.started_at != Instant::min() && now >= after(ahead_.started_at, kPrestartDelayMax);
    ahead_.delay = lasted ? kPrestartDelayMin
                          : std::clamp(ahead_.delay * 2, kPrestartDelayMin, kPrestartDelayMax);
    ahead_.again_at = after(now, ahead_.delay);
}

// Starts the replacement while its elastic peers leave the round.
void AgentCore::replace_lost(Instant now, const Worker& lost) {
    if (report_.state == NodeState::stopping && report_.elastic && lost.elastic && lost.may_wait &&
        leave_.stage == Leave::Stage::member && expects_another_round()) {
        prestart(now);
    }
}

// A guess, to avoid useless starts: the daemon decides only when all nodes have stopped.
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
