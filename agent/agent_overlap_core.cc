// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore starts the next workers while the last ones are still ending.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

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
        prestart();
    }
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
