// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore starts the next workers while the last ones are still ending.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

namespace {

// Until those that died ahead of a round are started again: doubled each time.
constexpr Duration kPrestartDelayMin = std::chrono::seconds(1);
constexpr Duration kPrestartDelayMax = std::chrono::seconds(60);

}  // namespace

bool AgentCore::is_outgoing(const WorkerExited& exited) const {
    const auto found = outgoing_.find(exited.local_rank);
    return found != outgoing_.end() && found->second.launched_in == exited.round &&
           found->second.generation == exited.generation;
}

// An elastic worker parks, and keeps its place; one that has just been started may still attach.
bool AgentCore::may_overlap() const {
    if (report_.state != NodeState::stopping || quit_ || departing_ || !outgoing_.empty() ||
        resist_at_ != Instant::max()) {
        return false;
    }
    bool any = false;
    bool all_may_wait = true;
    for (const auto& [local_rank, worker] : workers_) {
        if (!worker.parked) {
            if (worker.asked_by == 0) {
                return false;
            }
            any = true;
            all_may_wait = all_may_wait && worker.may_wait;
        }
    }
    return any &&
           (config_.overlap_restart || (all_may_wait && may_prestart_ && expects_another_round()));
}

// The daemon knows only when all nodes have stopped. A program is not started for nothing.
bool AgentCore::expects_another_round() const {
    if (assignment_.restart_count >= config_.policy.restarts_max) {
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

void AgentCore::on(Instant now, const RoomForSuccessors& event) {
    if (event.round != assignment_.round || !may_overlap()) {
        return;
    }
    ++generation_;
    outgoing_round_ = assignment_.round;
    ReleasePlaces release{outgoing_round_, {}, config_.overlap_restart};
    for (auto worker = workers_.begin(); worker != workers_.end();) {
        if (worker->second.parked) {
            ++worker;
            continue;
        }
        release.local_ranks.push_back(worker->first);
        outgoing_.insert(workers_.extract(worker++));
    }
    effects_.push_back(std::move(release));
    if (config_.overlap_restart) {
        passed_on_ = true;
        outgoing_force_at_ = force_at_;
        settle(now);
    } else {
        prestart(now);
    }
}

// ---- Those that are started ahead.

// Ahead of a round a worker counts as parked: it trains nothing, and may be given a place.
void AgentCore::prestart(Instant now) {
    if (quit_ || !may_prestart_) {
        return;
    }
    PrestartWorkers start{{}, generation_};
    for (std::uint32_t local_rank = 0; local_rank < config_.offer.workers; ++local_rank) {
        const auto [worker, is_new] = workers_.try_emplace(local_rank);
        if (is_new) {
            worker->second.parked = true;
            worker->second.generation = generation_;
            worker->second.successor = report_.state == NodeState::stopping;
            start.local_ranks.push_back(local_rank);
        }
    }
    if (!start.local_ranks.empty()) {
        prestarted_at_ = now;
        effects_.push_back(std::move(start));
    }
}

// While its peers, who keep their processes, are still on their way out of the round.
void AgentCore::replace_lost(Instant now, const Worker& lost) {
    if (report_.state == NodeState::stopping && report_.resident && lost.elastic && lost.may_wait &&
        !departing_ && drain_signal_ == 0 && expects_another_round()) {
        prestart(now);
    }
}

bool AgentCore::keeps_ahead() const {
    const bool in_no_round =
        report_.state == NodeState::stopped || report_.state == NodeState::finished;
    return ahead_wanted_ && in_no_round && settled() && !quit_;
}

void AgentCore::lose_ahead(Instant now, const Worker& lost) {
    // The next round is formed by who has which state: that is told at once.
    bool is_news = false;
    if (lost.trained && lost.asked_by == 0 && settled()) {
        report_.held_step = 0;
        for (const auto& [local_rank, worker] : workers_) {
            report_.held_step = std::max(report_.held_step, worker.step);
        }
        is_news = report_.held_step < lost.step;
    }
    may_prestart_ = may_prestart_ && lost.asked_by != 0;
    if (!may_prestart_ && keeps_ahead()) {
        prestart_later(now);
        // Whoever asks is told that they are being started.
        is_news = (!holds_state() && std::exchange(report_.resident, false)) || is_news;
    }
    if (is_news) {
        tell(now);
    }
}

// A program that cannot wait, or finds no memory, is not started over and over.
void AgentCore::prestart_later(Instant now) {
    if (prestart_at_ != Instant::max()) {
        return;
    }
    const bool lasted =
        prestarted_at_ != Instant::min() && now >= after(prestarted_at_, kPrestartDelayMax);
    prestart_delay_ = lasted
                          ? kPrestartDelayMin
                          : std::clamp(prestart_delay_ * 2, kPrestartDelayMin, kPrestartDelayMax);
    prestart_at_ = after(now, prestart_delay_);
}

// They were asked to end before their successors' round began; its success asked nothing more of
// them, and they had no limit but for the one SIGKILL.
void AgentCore::await_outgoing(Instant now) {
    if (!outgoing_.empty() && force_at_ == Instant::max()) {
        force_at_ = outgoing_force_at_ != Instant::max() ? outgoing_force_at_ : now;
    }
}

void AgentCore::kill_outgoing() {
    outgoing_force_at_ = Instant::max();
    SignalWorkers kill{outgoing_round_, SIGKILL, hurried_, {}};
    kill.released = true;
    for (const auto& [local_rank, worker] : outgoing_) {
        kill.local_ranks.push_back(local_rank);
    }
    if (!kill.local_ranks.empty()) {
        effects_.push_back(std::move(kill));
    }
}

}  // namespace regroup::agent
