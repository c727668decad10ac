// SPDX-License-Identifier: Apache-2.0
//
// Orders to workers, and their ends.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/agent_state.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::agent::core {

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

Wanted wanted(const AgentState& node) {
    if (node.leave.stage >= LeaveStage::ending) {
        return Wanted::end;
    }
    if (node.leave.stage == LeaveStage::saving) {
        return Wanted::save;
    }
    return node.report.state == NodeState::stopping ? Wanted::out : Wanted::keep;
}

}  // namespace

void order_workers(AgentState& node, const Cause* cause) {
    const RoundId round = node.round.assignment.round;
    const bool by_signal = node.leave.quit && node.leave.quit->signal != 0;
    const int signal = by_signal ? node.leave.quit->signal : SIGTERM;
    Workers::Orders orders = node.workers.order(wanted(node), signal);
    if (cause != nullptr) {
        // Also without workers to suspend: a worker that has yet to attach reads its page.
        node.effects.push_back(EndRound{round, std::move(orders.suspended), *cause});
    }
    if (!orders.terminated.empty()) {
        node.report.elastic = false;
        node.effects.push_back(SignalWorkers{round, signal, false, std::move(orders.terminated)});
    }
    if (!orders.killed.empty()) {
        node.effects.push_back(
            SignalWorkers{round, SIGKILL, false, std::move(orders.killed), true});
    }
}

void ask_to_stop(AgentState& node, Instant now, const Cause& cause) {
    node.grace.kill_at = std::min(
        {node.grace.kill_at, node.leave.until, after(now, node.config.policy.shutdown_timeout)});
    const bool leaves = node.leave.signal != 0;
    node.effects.push_back(
        PauseWorkers{node.report.round, leaves, node.grace.kill_at - now, cause});
}

void kill_workers(AgentState& node, Instant now) {
    if (node.grace.resist_at == Instant::max()) {
        node.grace.resist_at = after(now, kResistLimit);
    }
    node.grace.kill_at = after(now, kForceInterval);
    const bool hurried = node.leave.stage == LeaveStage::hurried;
    SignalWorkers kill{node.round.assignment.round, SIGKILL, hurried, node.workers.force()};
    if (!kill.local_ranks.empty()) {
        node.effects.push_back(std::move(kill));
    }
}

void end_for_unkillable(AgentState& node, Instant now) {
    QuitReason reason{QuitCause::workers_unkillable};
    reason.workers = static_cast<std::uint32_t>(node.workers.force().size());
    quit(node, now, Quit{kExitJobFailed, 0, reason});
    node.leave.quit->reason = reason;
    finish(node);
}

// ---- Workers that wait for a round.

bool keeps_ahead(const AgentState& node) {
    return node.ahead.wanted && !is_in_round(node) && node.leave.stage < LeaveStage::saving;
}

void prestart(AgentState& node, Instant now) {
    PrestartWorkers start{node.workers.start_ahead()};
    if (!start.local_ranks.empty()) {
        node.ahead.started_at = now;
        node.effects.push_back(std::move(start));
    }
}

namespace {

// A program that fails at once, for example without memory, is not started again immediately.
void prestart_later(AgentState& node, Instant now) {
    AgentState::Ahead& ahead = node.ahead;
    if (ahead.again_at != Instant::max()) {
        return;
    }
    const bool lasted =
        ahead.started_at != Instant::min() && now >= after(ahead.started_at, kPrestartDelayMax);
    const Duration longer = lasted ? kPrestartDelayMin : ahead.delay * 2;
    ahead.delay = std::clamp(longer, kPrestartDelayMin, kPrestartDelayMax);
    ahead.again_at = after(now, ahead.delay);
}

void lose_waiting(AgentState& node, Instant now, const Worker& lost) {
    bool is_news = false;
    const bool asked = lost.signal != 0;
    // The daemon forms the next round by the states of the nodes, so report the change at once.
    if (lost.round != RoundId::none && !asked && node.workers.all_out()) {
        node.report.held_step = node.workers.held_step();
        is_news = node.report.held_step < lost.step;
    }
    if (!asked && keeps_ahead(node)) {
        prestart_later(node, now);
        // regroup status shows that the workers are being started.
        is_news = (!node.workers.any_holds_state() && std::exchange(node.report.elastic, false)) ||
                  is_news;
    }
    if (is_news) {
        tell(node, now);
    }
}

// A guess, to avoid useless starts: the daemon decides only when all nodes have stopped.
bool expects_another_round(const AgentState& node) {
    if (node.round.assignment.restart_count >= node.config.policy.restarts_max) {
        return false;
    }
    if (!node.report.failure) {
        return true;
    }
    const auto reaction = node.config.policy.on_exit.find(shell_exit_code(*node.report.failure));
    return node.report.failure->kind != rendezvous::FailureKind::user_error &&
           (reaction == node.config.policy.on_exit.end() ||
            reaction->second != rendezvous::Reaction::fail);
}

// Starts the replacement while its elastic peers leave the round.
void replace_lost(AgentState& node, Instant now, const Worker& lost) {
    if (node.report.state == NodeState::stopping && node.report.elastic && lost.elastic &&
        lost.may_wait && node.leave.stage == LeaveStage::member && expects_another_round(node)) {
        prestart(node, now);
    }
}

// ---- Ends of workers.

bool was_stopped_by_us(const AgentState& node, const Worker& worker, const WorkerFailure& failure) {
    const bool forced = node.grace.resist_at != Instant::max();
    // A worker that ends with an error about a rank that did not come had it before we stopped it.
    const bool awaited = failure.peer_error == rendezvous::PeerError::awaited;
    return !worker.hang && !failure.announced &&
           ((failure.signal == 0 && !awaited) ||
            (worker.signal != 0 && failure.signal == worker.signal) ||
            (failure.signal == SIGKILL && forced));
}

void judge(AgentState& node, Instant now, const Worker& lost, const WorkerFailure& failure) {
    if (node.report.state == NodeState::running) {
        node.report.failure = failure;
        if (failure.has_stopped()) {
            begin_planned_stop(node, now, failure);  // The others are about to end as well.
        } else {
            check_node(node, now);
            begin_stopping(node, now, failure);
        }
        if (!is_ready(node)) {
            tell(node, now);  // Else the daemon hears of it at once, when the node is ready.
        }
    } else if (lost.round == node.report.round && !was_stopped_by_us(node, lost, failure) &&
               (!node.report.failure || outranks(failure, *node.report.failure))) {
        // It ended by itself while we stopped it. Its failure may be the cause of the stop.
        node.report.failure = failure;
        check_node(node, now);
    }
}

// Usually the other workers end at once too, and the node reports that it has finished. Otherwise
// the next heartbeat says it, which comes soon.
void note_finished(AgentState& node, Instant now, const Worker& lost, const WorkerExited& exited) {
    if (runs(node, lost.round) && node.leave.stage == LeaveStage::member) {
        node.report.finished.add(node.round.assignment.first_rank + exited.local_rank);
        if (node.link.up) {
            node.link.heartbeat_at = std::min(node.link.heartbeat_at, after(now, kFinishedLimit));
        }
    }
}

void lose_member(AgentState& node, Instant now, const Worker& lost, const WorkerExited& exited,
                 const std::optional<WorkerFailure>& failure) {
    if (lost.round == node.report.round) {
        node.report.ended_step = std::max(node.report.ended_step, exited.step);
        node.report.step = std::max(node.report.step, exited.step);
    }
    if (!failure) {
        note_finished(node, now, lost, exited);
        return;
    }
    judge(node, now, lost, *failure);
    if (!node.workers.all_out()) {
        replace_lost(node, now, lost);
    }
}

}  // namespace

// In a stopping round, the end of a worker follows from the earlier loss, unless the worker
// announced a failure.
std::optional<WorkerFailure> failure_in(const AgentState& node, const WorkerExited& exited) {
    if (exited.local_rank >= node.workers.size()) {
        return exited.failure;
    }
    const Worker& worker = node.workers[exited.local_rank];
    std::optional<WorkerFailure> failure = exited.failure;
    if (worker.in_round() && (worker.elastic || worker.stops) &&
        node.leave.stage == LeaveStage::member && !exited.finished && exited.unfinished &&
        (node.report.state == NodeState::running || exited.unfinished->announced)) {
        failure = exited.unfinished;
    }
    if (failure && worker.hang) {
        failure->kind = rendezvous::FailureKind::hang;
        failure->evidence = worker.hang->reason.text;
        failure->by_silence = worker.hang->by_silence;
    }
    return failure;
}

void handle(AgentState& node, Instant now, const WorkerExited& event) {
    Worker& worker = node.workers[event.local_rank];
    if (!worker.alive() || worker.launched_in != event.round) {
        return;
    }
    const std::optional<WorkerFailure> failure = failure_in(node, event);
    const Worker lost = std::exchange(worker, Worker{});
    node.round.any_stopped = node.round.any_stopped || (lost.stops && event.unfinished);
    if (!node.workers.any_alive()) {
        node.report.held_step = 0;
    }
    if (node.leave.stage != LeaveStage::member && lost.round != RoundId::none) {
        // Count only ends of workers that had to save: not of finished ones, and not of failures
        // before the node had to leave.
        if (!failure && !event.finished) {
            ++node.leave.saved;
        } else if (failure && (!lost.in_round() || node.leave.stage == LeaveStage::at_boundary ||
                               node.leave.stage == LeaveStage::saving)) {
            ++node.leave.failed;
        }
    }
    if (lost.in_round()) {
        lose_member(node, now, lost, event, failure);
    } else {
        lose_waiting(node, now, lost);
    }
    settle(node, now);
}

// A worker that nobody asked to end has failed; what is left of it counts as asked. A worker that
// waits for a round has nothing to save.
void handle(AgentState& node, Instant now, const WorkerEnding& event) {
    Worker& worker = node.workers[event.local_rank];
    if (!worker.alive() || worker.launched_in != event.round ||
        worker.state == WorkerState::ending || worker.state == WorkerState::saving ||
        !event.failure) {
        return;
    }
    if (!worker.in_round()) {
        node.effects.push_back(
            SignalWorkers{node.round.assignment.round, SIGKILL, false, {event.local_rank}, true});
        return;
    }
    const Worker lost = worker;
    worker.state = WorkerState::ending;
    worker.signal = event.failure->signal;
    judge(node, now, lost, *event.failure);
}

void handle(AgentState& node, Instant now, const WorkerSuspended& event) {
    Worker& worker = node.workers[event.local_rank];
    if (!worker.alive()) {
        return;
    }
    worker.elastic = true;
    update_elastic(node, now);
    // A worker that was started ahead may send this after it was assigned.
    if (event.round < worker.round) {
        return;
    }
    if (worker.state == WorkerState::ending) {
        // The worker is about to end by our order, so its end is no failure, unless the round hangs
        // on it.
        if (!worker.hang || node.report.state != NodeState::running) {
            node.report.ended_step = std::max(node.report.ended_step, event.step);
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
    node.round.pausing =
        node.round.pausing || (event.at_boundary && node.report.state == NodeState::running);
    if (node.report.state == NodeState::running && !node.round.pausing) {
        // Its peers are lost, so the round is over.
        begin_stopping(node, now, PeersUnreachable{});
        if (!node.workers.all_out()) {
            tell(node, now);
        }
    }
    order_workers(node);
    settle(node, now);
}

}  // namespace regroup::agent::core
