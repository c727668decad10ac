// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore deals with its workers: rounds begin and end under them.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

bool AgentCore::is_parked(std::uint32_t local_rank) const {
    const auto worker = workers_.find(local_rank);
    return worker != workers_.end() && worker->second.parked;
}

bool AgentCore::settled() const {
    return (outgoing_.empty() || (passed_on_ && !quit_)) &&
           std::all_of(workers_.begin(), workers_.end(),
                       [&](const auto& w) { return w.second.parked && !quit_; });
}

// ---- Beginning.

// Everyone was told of a store that has served an earlier round and is closed: an old message from
// here had overtaken a newer one, or the daemon had not been heard when it gave out that round.
bool AgentCore::names_spent_store(const Assignment& assignment) const {
    return assignment.group_rank == 0 && assignment.master_port != report_.store_port;
}

void AgentCore::refuse(Instant now, RoundId round) {
    abandon(now, round);
    report_.store_spent = true;
}

void AgentCore::forget_round() {
    report_.failure.reset();
    report_.ended_step = 0;
    report_.store_spent = false;
    report_.hang.reset();
    report_.positions.clear();
    report_.alarm = 0;
    report_.broken_links.clear();
}

void AgentCore::begin_round(Instant now, const Assignment& assignment) {
    ENSURE(settled());
    assignment_ = assignment;
    resumed_.reset();
    ended_at_ = Instant::max();
    leave_reason_.clear();
    extra_round_ = draining();
    step_before_ = report_.step;
    report_.round = assignment.round;
    report_.state = NodeState::running;
    report_.uneven = false;
    forget_round();
    stacks_wanted_ = stacks_being_saved_ = 0;
    unfinished_ = false;
    spare_ = false;
    may_prestart_ = true;
    ahead_wanted_ = false;
    prestart_delay_ = Duration::zero();
    prestart_at_ = Instant::max();
    AssignWorkers assign{assignment, {}};
    LaunchWorkers launch{assignment, {}, generation_};
    bool any_keeps_process = false;
    for (std::uint32_t local_rank = 0; local_rank < config_.offer.workers; ++local_rank) {
        const auto [worker, is_new] = workers_.try_emplace(local_rank);
        (is_new ? launch.local_ranks : assign.local_ranks).push_back(local_rank);
        worker->second.round = assignment.round;
        worker->second.parked = worker->second.left = false;
        any_keeps_process = any_keeps_process || (!is_new && !worker->second.successor);
        worker->second.trained = true;
        if (is_new) {
            worker->second.launched_in = assignment.round;
            worker->second.generation = generation_;
        }
    }
    effects_.push_back(BeginRound{assignment});
    if (!assign.local_ranks.empty()) {
        effects_.push_back(std::move(assign));
    }
    if (!launch.local_ranks.empty()) {
        effects_.push_back(std::move(launch));
    }
    // Workers that keep their processes say themselves when they train again. Of others this is
    // the end of the way back, or of the growth, which the next heartbeat would tell late.
    if (!any_keeps_process && link_up_) {
        tell(now);
    }
}

// ---- Ending.

// Once the round is stopping, who gives up and ends has only followed those who are lost, unless it
// had said otherwise.
std::optional<WorkerFailure> AgentCore::failure_in(const WorkerExited& exited) const {
    const auto found = workers_.find(exited.local_rank);
    const bool trains = found != workers_.end() && found->second.launched_in == exited.round &&
                        found->second.generation == exited.generation && found->second.elastic &&
                        found->second.round != RoundId::none;
    if (!trains || departing_ || draining() || quit_ || exited.finished || !exited.unfinished) {
        return exited.failure;
    }
    const bool by_itself = report_.state == NodeState::running || exited.unfinished->announced;
    return by_itself ? exited.unfinished : exited.failure;
}

void AgentCore::on(Instant now, const WorkerExited& event) {
    std::optional<WorkerFailure> failure = failure_in(event);
    const bool outgoing = is_outgoing(event);
    WorkerMap& living = outgoing ? outgoing_ : workers_;
    const auto found = living.find(event.local_rank);
    if (found == living.end() || found->second.launched_in != event.round ||
        found->second.generation != event.generation) {
        return;
    }
    const Worker worker = found->second;
    living.erase(found);
    if (workers_.empty()) {
        report_.held_step = 0;
    }
    if (outgoing_.empty()) {
        outgoing_force_at_ = Instant::max();
    }
    if (failure && !worker.hung.empty()) {
        failure->kind = rendezvous::FailureKind::hang;
        failure->evidence = worker.hung;
        failure->by_silence = worker.hung_by_silence;
    }
    // What becomes of one whose place was passed on is of no consequence but for who waits for it.
    const bool awaited = outgoing && !passed_on_;
    const bool trained = worker.round != RoundId::none &&
                         (!outgoing || (awaited && worker.round == assignment_.round));
    if (!trained) {
        lose_ahead(now, worker);
    } else if (failure && report_.state == NodeState::running) {
        report_.failure = failure;
        begin_stopping(now, describe(*failure));
        if (!settled()) {
            tell(now);  // A failure is news; else the daemon hears when the last one is gone.
        }
    } else if (failure && worker.round == report_.round && !worker.left &&
               !was_stopped_by_us(worker, *failure) &&
               (!report_.failure || outranks(*failure, *report_.failure))) {
        // It ended by itself while we were stopping it; perhaps that is why we were told to.
        report_.failure = failure;
    }
    if (trained && worker.round == report_.round) {
        report_.ended_step = std::max(report_.ended_step, event.step);
        report_.step = std::max(report_.step, event.step);
    }
    unfinished_ = unfinished_ || (trained && !event.finished);
    // Who has finished has left nothing to go on with, and has saved nothing.
    if (departing_ && worker.trained && (failure || !event.finished)) {
        count_departed(worker, failure.has_value());
    }
    if (trained && failure && !settled()) {
        replace_lost(now, worker);
    }
    // One that was parked, or ahead of a round, takes nothing with it.
    if (settled() && (trained || awaited || quit_ || (departing_ && workers_.empty()))) {
        settle(now);
    }
}

bool AgentCore::was_stopped_by_us(const Worker& worker, const WorkerFailure& failure) const {
    const bool forced = resist_at_ != Instant::max();
    return worker.hung.empty() && !failure.announced &&
           (failure.signal == 0 || (worker.asked_by != 0 && failure.signal == worker.asked_by) ||
            (failure.signal == SIGKILL && forced));
}

// Those who can park are asked to; the others end with the round.
void AgentCore::begin_stopping(Instant now, const std::string& reason) {
    if (report_.state != NodeState::running) {
        return;
    }
    report_.state = NodeState::stopping;
    ended_at_ = std::min(ended_at_, now);
    pausing_ = false;
    passed_on_ = false;  // At most one generation is behind: the next round waits for it.
    if (settled()) {
        return;
    }
    force_at_ = after(now, config_.policy.shutdown_timeout);
    patience_until_ = Instant::max();
    report_.at_work = Duration::zero();
    if (departing_ && depart_until_ != Instant::max()) {
        force_at_ = std::max(force_at_, depart_until_);  // Some are saving already.
    }
    EndRound end{assignment_.round, {}, reason};
    SignalWorkers signal{assignment_.round, SIGTERM, false, {}};
    for (auto& [local_rank, worker] : workers_) {
        if (worker.elastic && !worker.parked) {
            end.local_ranks.push_back(local_rank);
        } else if (!worker.parked) {
            worker.asked_by = SIGTERM;
            signal.local_ranks.push_back(local_rank);
        }
    }
    // Also when nobody is to park: a page may say so to one that has yet to attach.
    effects_.push_back(std::move(end));
    if (!signal.local_ranks.empty()) {
        report_.resident = false;
        signal.overlaps = may_overlap();
        effects_.push_back(std::move(signal));
    }
}

void AgentCore::end_workers(Instant now, int signal) {
    if (report_.state == NodeState::running) {
        report_.state = NodeState::stopping;
    }
    force_at_ = std::min(force_at_, after(now, config_.policy.shutdown_timeout));
    SignalWorkers effect{assignment_.round, signal, false, {}};
    // A program's handler of the signal, which ends its training in order, would only hold up the
    // end of who trains nothing.
    SignalWorkers idle{assignment_.round, SIGKILL, false, {}, true};
    for (auto& [local_rank, worker] : workers_) {
        if (worker.asked_by == 0) {
            worker.asked_by = worker.parked ? SIGKILL : signal;
            (worker.parked ? idle : effect).local_ranks.push_back(local_rank);
        }
    }
    for (SignalWorkers* const some : {&effect, &idle}) {
        if (!some->local_ranks.empty()) {
            effects_.push_back(std::move(*some));
        }
    }
}

void AgentCore::settle(Instant now) {
    force_at_ = Instant::max();
    patience_until_ = Instant::max();
    resist_at_ = Instant::max();
    const bool orderly =
        report_.state == NodeState::running || (report_.state == NodeState::finished && !rejoin_);
    pausing_ = false;
    // The boundary may have been the last one.
    const bool leaves = departing_ || draining();
    const bool finished = orderly && workers_.empty() && (!leaves || !unfinished_);
    report_.state = finished ? NodeState::finished : NodeState::stopped;
    ended_at_ = std::min(ended_at_, now);
    if (finished) {
        passed_on_ = false;  // As at a pause: should there be another round, it waits for them.
        departing_ = false;
        depart_until_ = Instant::max();
    }
    if (quit_) {
        if (departing_ && drain_signal_ != 0 && saved_ && !unsaved_ &&
            quit_->exit_code == kExitRequeue) {
            quit_->reason = drained_for();  // The verdict has come first, and says the same.
        }
        quit_sent_ = true;
        effects_.push_back(*quit_);
        return;
    }
    give_up_at_ = Instant::max();  // What is to come has the whole time, from now.
    if (departing_ && workers_.empty()) {
        end_departure(now, orderly);
        return;
    }
    if (draining() && !link_up_ && !finished && workers_.empty()) {
        end_alone(now);
        return;
    }
    if (departing_ && !saved_ && !at_once_) {
        // The round has ended first. Should its workers have come to different steps, one more
        // round lets all save the same; the daemon knows whether there will be one, or has been.
        departing_ = false;
        depart_until_ = Instant::max();
    }
    if (departing_) {
        // They save what they have.
        rejoin_ = false;
        next_assignment_.reset();
        if (depart_until_ == Instant::max()) {
            depart_until_ = after(now, config_.policy.prepare_timeout);
        }
        let_parked_leave(now);
        tell(now);
        return;
    }
    if (std::exchange(rejoin_, false) && link_up_) {
        next_assignment_.reset();  // The answer is the truth.
        send_join(now);
        return;
    }
    if (next_assignment_ && !names_spent_store(*next_assignment_)) {
        begin_round(now, *std::exchange(next_assignment_, std::nullopt));
        return;
    }
    if (next_assignment_) {
        refuse(now, next_assignment_->round);
    }
    tell(now);
}

}  // namespace regroup::agent
