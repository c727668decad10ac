// SPDX-License-Identifier: Apache-2.0
//
// What an AgentCore hears from its workers while they live.
#include <algorithm>
#include <utility>

#include "agent/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

void AgentCore::on(Instant now, const WorkerAttached& event) {
    const auto worker = workers_.find(event.local_rank);
    if (worker != workers_.end() && worker->second.generation == event.generation) {
        const bool is_through = worker->second.elastic && !event.elastic;
        worker->second.elastic = event.elastic;
        worker->second.may_wait = event.may_wait;
        if (is_through) {
            // It needs its peers no more.
            const std::uint32_t rank = assignment_.first_rank + event.local_rank;
            std::erase_if(report_.broken_links,
                          [&](const auto& link) { return link.rank == rank; });
            if (report_.state == NodeState::running && report_.broken_links.empty()) {
                ended_at_ = Instant::max();
            }
        }
        if (is_through && report_.resident) {
            // It comes to no step boundary any more; what ends it is what ends any program.
            report_.resident = false;
            tell(now);
        }
        update_resident(now);
    }
}

// It stays true while a process that replaces a lost one has yet to say that it is as the others.
void AgentCore::update_resident(Instant now) {
    const bool all = workers_.size() == config_.offer.workers &&
                     std::all_of(workers_.begin(), workers_.end(),
                                 [](const auto& w) { return w.second.elastic; });
    if (all && !report_.resident) {
        report_.resident = true;
        if (!quit_) {
            tell(now);
        }
    }
}

void AgentCore::on(Instant now, const WorkerParked& event) {
    const auto found = workers_.find(event.local_rank);
    if (found == workers_.end() || found->second.generation != event.generation) {
        return;
    }
    Worker& worker = found->second;
    // Any program with the SDK can wait for its first place; this one's has no loop, or will say.
    worker.elastic = worker.elastic || !worker.successor;
    update_resident(now);
    // The word of one that was started ahead may come after its place was given to it. One that was
    // told to end is as good as gone, whatever it managed to say before.
    worker.left = worker.left || event.round >= worker.round;
    if (worker.parked || worker.asked_by != 0 || !worker.hung.empty() ||
        event.round < worker.round) {
        return;
    }
    worker.parked = true;
    worker.step = event.step;
    worker.round = RoundId::none;
    // The round is ending, and who is from before it holds up the next one.
    passed_on_ = passed_on_ && report_.state != NodeState::running;
    // Some rank had heard that the round is to pause, and here the word was lost.
    pausing_ = pausing_ || (event.at_boundary && report_.state == NodeState::running);
    if (report_.state == NodeState::running && !pausing_) {
        // Its peers are out of reach, and that is the end of the round, whoever says so first.
        begin_stopping(now, "a worker could not reach its peers");
        if (!settled()) {
            tell(now);
        }
    }
    if (settled() && report_.state != NodeState::stopped) {
        settle(now);
    }
}

void AgentCore::on(Instant now, const WorkerResumed& event) {
    const bool is_rank_zero = assignment_.first_rank + event.local_rank == 0;
    if (!is_rank_zero || quit_ || event.resumed.round != report_.round) {
        return;
    }
    resumed_ = event.resumed;
    resumed_at_ = now;
    report_.step = std::max(report_.step, event.resumed.step);
    if (link_up_) {
        effects_.push_back(SendToDaemon{event.resumed});
        heartbeat_at_ = std::min(heartbeat_at_, after(now, heartbeat_interval_));
    }
}

// Whether the peer is dead the daemon may know, or learn from the node at the other end. One whose
// training is finished needs no peer.
void AgentCore::on(Instant now, const WorkerLostPeer& event) {
    const auto worker = workers_.find(event.local_rank);
    if (worker == workers_.end() || !worker->second.elastic || worker->second.parked) {
        return;
    }
    const std::uint32_t rank = assignment_.first_rank + event.local_rank;
    const bool is_news = std::none_of(report_.broken_links.begin(), report_.broken_links.end(),
                                      [&](const auto& link) { return link.rank == rank; });
    if (event.round == report_.round && report_.state == NodeState::running && !quit_ && is_news) {
        report_.broken_links.push_back({rank, event.peer, event.text});
        ended_at_ = std::min(ended_at_, now);
        tell(now);
    }
}

// A loss in the middle of a commit: some have had the word that all were there, and some have not.
// Who was interrupted as it got the state has none of its own.
void AgentCore::update_uneven() {
    report_.uneven = std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
        const Worker& worker = entry.second;
        return worker.parked && worker.trained && worker.step != report_.held_step;
    });
}

// Who is to leave has no more time than it was given.
void AgentCore::on(Instant now, const WorkersAtWork& event) {
    const bool parking = report_.state == NodeState::stopping && report_.resident &&
                         event.round == report_.round && !settled();
    const bool is_to_leave = draining() || !leave_reason_.empty() || departing_;
    const Instant until = after(now, event.left);
    if (!parking || is_to_leave || quit_ || resist_at_ != Instant::max() || until <= force_at_) {
        return;
    }
    const bool first = patience_until_ == Instant::max() && report_.at_work == Duration::zero();
    if (first) {
        patience_until_ = force_at_;
    }
    force_at_ = until;
    update_at_work(now);
    if (first) {
        tell(now);
    }
}

void AgentCore::update_at_work(Instant now) {
    const bool waits = report_.at_work != Duration::zero() || patience_until_ != Instant::max();
    report_.at_work = waits && report_.state == NodeState::stopping && force_at_ != Instant::max()
                          ? std::max(Duration::zero(), force_at_ - now)
                          : Duration::zero();
}

void AgentCore::on(Instant /*now*/, const StepsCommitted& event) {
    if (event.step > std::exchange(report_.held_step, event.step)) {
        give_up_at_ = Instant::max();  // Whoever trains needs no daemon, for however long.
    }
    report_.step = std::max(report_.step, event.step);
}

void AgentCore::on(Instant now, const HangSuspected& event) {
    if (event.round == report_.round && report_.state == NodeState::running && !quit_ &&
        report_.hang != event.hang) {
        report_.hang = event.hang;
        tell(now);
    }
}

void AgentCore::save_stacks() {
    stacks_being_saved_ = stacks_wanted_;
    effects_.push_back(SaveStacks{report_.round, stacks_reason_});
}

void AgentCore::on(Instant now, const StacksSaved& event) {
    if (event.round != report_.round || quit_ || stacks_being_saved_ == 0) {
        return;
    }
    const std::uint32_t alarm = std::exchange(stacks_being_saved_, 0);
    if (alarm != stacks_wanted_) {
        // That alarm was taken back, and where the workers stood then is no answer to this one.
        save_stacks();
        return;
    }
    report_.positions = event.positions;
    report_.alarm = alarm;
    tell(now);
}

}  // namespace regroup::agent
