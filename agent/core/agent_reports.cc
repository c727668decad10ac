// SPDX-License-Identifier: Apache-2.0
//
// How an AgentCore handles the messages of live workers.
#include <algorithm>
#include <utility>

#include "agent/core/agent_core.h"

namespace regroup::agent {

using rendezvous::NodeState;

void AgentCore::on(Instant now, const WorkerAttached& event) {
    Worker& worker = workers_[event.local_rank];
    if (!worker.alive()) {
        return;
    }
    const bool is_through = worker.elastic && !event.elastic;
    worker.elastic = event.elastic;
    worker.may_wait = event.may_wait;
    if (is_through) {
        // The worker has finished its training and needs its peers no more.
        const std::uint32_t rank = assignment().first_rank + event.local_rank;
        std::erase_if(report_.broken_links, [&](const auto& link) { return link.rank == rank; });
        if (report_.state == NodeState::running && report_.broken_links.empty()) {
            round_.ended_at = Instant::max();
        }
    }
    if (is_through && report_.elastic) {
        // The worker reaches no step boundary any more. It ends like a program without the SDK.
        report_.elastic = false;
        tell(now);
    }
    update_elastic(now);
}

// The node stays elastic while the replacement of a lost worker has not attached yet.
void AgentCore::update_elastic(Instant now) {
    if (workers_.all_elastic() && !report_.elastic) {
        report_.elastic = true;
        if (!leaving()) {
            tell(now);
        }
    }
}

void AgentCore::on(Instant now, const WorkerResumed& event) {
    const bool is_rank_zero = assignment().first_rank + event.local_rank == 0;
    if (!is_rank_zero || leaving() || event.resumed.round != report_.round) {
        return;
    }
    round_.resumed = event.resumed;
    round_.resumed_at = now;
    report_.step = std::max(report_.step, event.resumed.step);
    if (link_.up) {
        effects_.push_back(SendToDaemon{event.resumed});
        link_.heartbeat_at =
            std::min(link_.heartbeat_at, after(now, config_.policy.heartbeat_timeout / 3));
    }
}

// Only reports the peer: the daemon finds out whether it is dead. A worker that has finished its
// training needs no peer.
void AgentCore::on(Instant now, const WorkerLostPeer& event) {
    const Worker& worker = workers_[event.local_rank];
    if (!worker.elastic || worker.is_out()) {
        return;
    }
    const std::uint32_t rank = assignment().first_rank + event.local_rank;
    const bool is_news = std::none_of(report_.broken_links.begin(), report_.broken_links.end(),
                                      [&](const auto& link) { return link.rank == rank; });
    if (event.round == report_.round && report_.state == NodeState::running && is_news) {
        report_.broken_links.push_back({rank, event.peer, event.text});
        round_.ended_at = std::min(round_.ended_at, now);
        tell(now);
    }
}

// A leaving node gets no more time.
void AgentCore::on(Instant now, const WorkersAtWork& event) {
    const bool suspending = report_.state == NodeState::stopping && report_.elastic &&
                            event.round == report_.round && !workers_.all_out();
    const Instant until = after(now, event.left);
    if (!suspending || leave_.stage != Leave::Stage::member || grace_.resist_at != Instant::max() ||
        until <= grace_.kill_at) {
        return;
    }
    const bool first = !std::exchange(grace_.in_user_code, true);
    if (first) {
        grace_.tell_at = grace_.kill_at;
    }
    grace_.kill_at = until;
    if (first) {
        tell(now);
    }
}

void AgentCore::update_at_work(Instant now) {
    Instant until = grace_.in_user_code ? grace_.kill_at : now;
    // A check that began late may end later than the daemon waits for workers.
    if (round_.check == Round::Check::awaited &&
        round_.check_until > after(round_.ended_at, config_.policy.shutdown_timeout)) {
        until = std::max(until, round_.check_until);
    }
    report_.at_work = report_.state == NodeState::stopping ? std::max(Duration::zero(), until - now)
                                                           : Duration::zero();
}

void AgentCore::on(Instant /*now*/, const StepsCommitted& event) {
    if (event.step > std::exchange(report_.held_step, event.step)) {
        link_.give_up_at = Instant::max();  // A node that commits steps needs no daemon.
    }
    report_.step = std::max(report_.step, event.step);
}

void AgentCore::on(Instant now, const HangSuspected& event) {
    if (event.round == report_.round && report_.state == NodeState::running &&
        report_.hang != event.hang) {
        report_.hang = event.hang;
        tell(now);
    }
}

void AgentCore::save_stacks() {
    round_.stacks_being_saved = round_.stacks_wanted.alarm;
    effects_.push_back(SaveStacks{report_.round, round_.stacks_wanted.reason});
}

void AgentCore::on(Instant now, const StacksSaved& event) {
    if (event.round != report_.round || leaving() || round_.stacks_being_saved == 0) {
        return;
    }
    const std::uint32_t alarm = std::exchange(round_.stacks_being_saved, 0);
    if (alarm != round_.stacks_wanted.alarm) {
        // The daemon withdrew the alarm that these positions belong to. They are too old for the
        // new alarm.
        save_stacks();
        return;
    }
    report_.positions = event.positions;
    report_.alarm = alarm;
    tell(now);
}

}  // namespace regroup::agent
