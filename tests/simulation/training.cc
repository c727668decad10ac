// SPDX-License-Identifier: Apache-2.0
//
// Workers between their start and their end: rounds and steps. Their groups are in groups.cc.
#include <algorithm>
#include <utility>

#include "agent/watch/progress_watch.h"
#include "tests/simulation/workers.h"

namespace regroup::simulation {

using rendezvous::RoundId;
using worker_link::Leaving;

namespace {

constexpr Duration kLookMax = std::chrono::seconds(1);
constexpr Duration kSaveMax = std::chrono::seconds(1);
constexpr Duration kSuspensionMax = std::chrono::milliseconds(5);
constexpr Duration kFinishedMax = std::chrono::milliseconds(3);

// All ranks go on, and the agents see it.
void end_standstill(Workers& all, WorkerGroup& group, std::size_t index) {
    const Instant since = std::exchange(group.still_since, Instant::max());
    if (all.world.now < after(since, all.world.plan.hang_limit)) {
        return;
    }
    std::map<std::uint32_t, std::uint64_t> incarnations;  // By host.
    for (const Worker* worker : present(all, index)) {
        incarnations[worker->host] = worker->incarnation;
    }
    for (const auto& [host, incarnation] : incarnations) {
        // After the events that they have seen before.
        say(all, host, incarnation, kLookMax + between(all.world.second_random, {}, kLookMax),
            agent::HangSuspected{group.round, std::nullopt});
    }
}

void leave_if_told(Workers& all, Worker& worker) {
    if (all.hosts[worker.host].leaving == Leaving::at_once && worker.alive && worker.elastic &&
        worker.stage == WorkerStage::idle && worker.group == kNoGroup) {
        worker.stage = WorkerStage::leaving;
        all.world.tell(
            [&](Checker& c) { c.on_left(all.world.now, worker.host, worker.life, worker.step); });
        schedule_end(all, all.world.now + between(all.world.random, {}, kSaveMax), worker,
                     WorkerEnd::success);
    }
}

void abort_worker(Workers& all, Worker& worker) {
    if (worker.stage != WorkerStage::forming && worker.stage != WorkerStage::training) {
        return;
    }
    all.world.tell([&](Checker& c) {
        c.on_aborted(all.world.now, worker.host, worker.life, worker.round,
                     worker.stage == WorkerStage::training);
    });
    const bool trains = std::exchange(worker.stage, WorkerStage::aborting) == WorkerStage::training;
    Duration work{};
    if (trains && all.world.plan.own_work > Duration::zero() &&
        all.world.second_random.chance(0.4)) {
        work = between(all.world.second_random, {}, all.world.plan.own_work);
        const Duration look = between(all.world.second_random, {}, kLookMax);
        if (look < work) {
            say(all, worker.host, worker.incarnation, look,
                agent::WorkersAtWork{worker.round, all.world.plan.own_work - look});
        }
    }
    if (!worker.hung && !all.world.random.chance(all.world.plan.never_suspends)) {
        schedule_suspends(all, worker, all.world.plan.suspension_max, work);
    }
    leave_group(all, worker);
}

}  // namespace

void assign_workers(Workers& all, std::uint32_t host, const rendezvous::Assignment& assignment,
                    std::span<const std::uint32_t> local_ranks) {
    all.hosts[host].leaving = worker_link::Leaving::no;
    for (const std::uint32_t local_rank : local_ranks) {
        Worker& worker = all.hosts[host].workers[local_rank];
        if (!worker.alive) {
            // The agent has not heard of its end yet, and will count it as an end in this round.
            all.world.tell([&](Checker& c) {
                c.on_worker_start(all.world.now, host, assignment.round);
                c.on_worker_end(all.world.now, host, assignment.round, worker.own_fault);
            });
            continue;
        }
        enter_round(all, worker, assignment);
        if (worker.stage == WorkerStage::idle && !worker.elastic) {
            train_plainly(all, worker);
        } else if (worker.stage == WorkerStage::idle) {
            worker.stage = WorkerStage::forming;
            if (all.groups[worker.group].broken) {
                schedule_consequence(all, worker);
            }
            ready_to_form(all, worker.group);
        } else {
            worker.place = assignment;
        }
    }
}

void on_worker_ready(Workers& all, std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find_worker(all, host, tag);
    if (worker == nullptr || (worker->elastic && worker->stage != WorkerStage::starting)) {
        return;
    }
    speak(all, *worker, agent::WorkerAttached{worker->local_rank, worker->elastic, true});
    if (worker->launched_in == RoundId::none) {
        speak(all, *worker, agent::WorkerSuspended{worker->local_rank, RoundId::none, false});
    }
    worker->place.reset();
    if (!worker->elastic) {
        if (worker->stage == WorkerStage::starting && worker->group != kNoGroup) {
            train_plainly(all, *worker);
        } else if (worker->stage == WorkerStage::starting) {
            worker->stage = WorkerStage::idle;
        }
        return;
    }
    worker->stage = worker->group == kNoGroup ? WorkerStage::idle : WorkerStage::forming;
    if (worker->group == kNoGroup) {
        return;
    }
    if (all.hosts[host].ended >= worker->round) {
        abort_worker(all, *worker);
    } else if (all.groups[worker->group].broken) {
        schedule_consequence(all, *worker);
    } else {
        ready_to_form(all, worker->group);
    }
}

// All ranks take over the most advanced state.
void on_group_formed(Workers& all, std::uint32_t index) {
    WorkerGroup& group = all.groups[index];
    if (group.broken || group.severed || group.formed) {
        return;
    }
    if (is_apart(all, group)) {
        form_later(all, index);
        return;
    }
    group.formed = true;
    end_standstill(all, group, index);
    const std::vector<Worker*> workers = present(all, index);
    std::uint64_t source = 0;
    std::vector<MemberView> members;
    for (const Worker* worker : workers) {
        source = std::max(source, worker->step);
        members.push_back({worker->host, worker->life, worker->step});
    }
    for (Worker* worker : workers) {
        worker->step = source;
        worker->stage = WorkerStage::training;
    }
    group.formed_at = all.world.now;
    group.finish_at = std::max(group.finish_at, all.world.now + all.world.job.step_time);
    all.world.note([&] {
        return "round " + std::to_string(number(group.round)) + " has formed, at step " +
               std::to_string(source);
    });
    all.world.tell([&](Checker& c) {
        c.on_group_formed(all.world.now, {index, group.round}, source, members);
    });
    all.world.queue.push(all.world.now + all.world.job.step_time, EventKind::group_vote, index);
}

void on_group_vote(Workers& all, std::uint32_t index) {
    WorkerGroup& group = all.groups[index];
    if (group.broken || group.severed) {
        return;
    }
    const std::vector<Worker*> workers = present(all, index);
    if (std::any_of(workers.begin(), workers.end(), [](const Worker* w) { return w->hung; })) {
        group.still_since = all.world.now;
        all.world.queue.push(all.world.now + all.world.plan.hang_limit, EventKind::group_standstill,
                             index);
        return;
    }
    const bool over = all.world.now >= group.finish_at && !all.world.plan.endless;
    group.outcome = over ? WorkerGroup::Outcome::finish : WorkerGroup::Outcome::go_on;
    group.to_apply = static_cast<std::uint32_t>(workers.size());
    for (Worker* worker : workers) {
        worker->awaits_outcome = true;
        if (all.hosts[worker->host].paused >= group.round &&
            group.outcome == WorkerGroup::Outcome::go_on) {
            group.outcome = WorkerGroup::Outcome::suspend;
        }
        all.world.queue.push(
            all.world.now + between(all.world.random, {}, all.world.plan.apply_max),
            EventKind::worker_apply, worker->host, tag_of(*worker));
    }
    if (group.outcome == WorkerGroup::Outcome::suspend) {
        lose_one_at_boundary(all, group);
    }
    all.world.tell([&](Checker& c) {
        c.on_vote(all.world.now, {index, group.round},
                  group.outcome == WorkerGroup::Outcome::suspend);
        if (group.outcome == WorkerGroup::Outcome::finish) {
            c.on_finished(all.world.now, {index, group.round});
        }
    });
}

void on_worker_apply(Workers& all, std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find_worker(all, host, tag);
    // A rank that has read the end of the round from its page keeps its old state.
    if (worker == nullptr || worker->stage != WorkerStage::training || !worker->awaits_outcome ||
        all.hosts[host].ended >= worker->round) {
        return;
    }
    const std::size_t index = worker->group;
    WorkerGroup& group = all.groups[index];
    worker->awaits_outcome = false;
    ++worker->step;
    all.world.trace.mix(worker->step);
    all.world.tell([&](Checker& c) {
        c.on_commit(all.world.now, host, worker->life, {index, group.round}, worker->step);
    });
    if (!std::exchange(worker->resumed, true)) {
        const Duration first_step = all.world.now - group.formed_at;
        speak(
            all, *worker,
            agent::WorkerResumed{worker->local_rank,
                                 {group.round, worker->step, group.formed_at - worker->assigned_at,
                                  Duration::zero(), first_step}});
    }
    --group.to_apply;
    switch (group.outcome) {
        case WorkerGroup::Outcome::go_on:
            if (group.to_apply == 0 && !group.broken && !group.severed) {
                all.world.queue.push(all.world.now + all.world.job.step_time, EventKind::group_vote,
                                     static_cast<std::uint32_t>(index));
            }
            break;
        case WorkerGroup::Outcome::suspend: {
            const bool leaves = leaves_at_boundary(all, host, group);
            worker->at_boundary = true;
            worker->boundary_pause =
                between(all.world.random, {}, leaves ? kSaveMax : kSuspensionMax);
            if (group.broken) {
                schedule_consequence(all, *worker);
            } else if (group.to_apply == 0 && !group.severed) {
                pass_boundary(all, index);
            }
            return;
        }
        case WorkerGroup::Outcome::finish:
            worker->finished = true;
            worker->stage = WorkerStage::leaving;
            all.world.tell([&](Checker& c) { c.on_process_finished(all.world.now, worker->life); });
            // From here on it ends with its round, as a program without the SDK.
            speak(all, *worker, between(all.world.second_random, {}, kFinishedMax),
                  agent::WorkerAttached{worker->local_rank, false, true});
            schedule_end(all,
                         all.world.now + between(all.world.random, {}, all.world.plan.skew_max),
                         *worker, WorkerEnd::success);
            break;
    }
    if (group.outcome == WorkerGroup::Outcome::finish) {
        worker->group = kNoGroup;  // It leaves in order: its peers do not notice a loss.
    }
}

void on_group_standstill(Workers& all, std::uint32_t index) {
    const WorkerGroup& group = all.groups[index];
    if (group.broken || group.severed ||
        all.world.now < after(group.still_since, all.world.plan.hang_limit)) {
        return;
    }
    if (!group.formed) {
        all.world.tell([&](Checker& c) { c.on_stuck(all.world.now, {index, group.round}); });
    }
    // Every agent reads the pages of its own workers. At about this time it sees that one stands
    // still, or that all of them wait for a worker of another node.
    std::map<std::uint32_t, const Worker*> suspects;  // By host.
    for (const Worker* worker : present(all, index)) {
        const auto [known, is_new] = suspects.emplace(worker->host, worker);
        known->second = worker->hung ? worker : known->second;
    }
    for (const auto& [host, worker] : suspects) {
        if (worker->hung || all.world.random.chance(0.7)) {
            say(all, host, worker->incarnation, between(all.world.random, {}, kLookMax),
                agent::HangSuspected{
                    group.round,
                    rendezvous::Hang{worker->rank,
                                     "rank " + std::to_string(worker->rank) + " stands still",
                                     !worker->hung, all.world.plan.hang_limit}});
        }
    }
    all.world.queue.push(all.world.now + all.world.plan.hang_limit, EventKind::group_standstill,
                         index);
}

std::vector<rendezvous::RankPosition> positions_of(const Workers& all, std::uint32_t host) {
    std::vector<rendezvous::RankPosition> result;
    const std::vector<Worker>& workers = all.hosts[host].workers;
    for (const Worker& worker : workers) {
        if (!worker.alive || worker.round == RoundId::none) {
            continue;
        }
        agent::WorkerLook look;
        look.rank = worker.rank;
        look.step = worker.step;
        if (worker.stage == WorkerStage::forming) {
            look.phase = worker_link::Phase::forming;
        } else {
            // The hanging rank has not issued the collective that the others wait in.
            look.phase = worker_link::Phase::training;
            look.operations = worker.hung ? 1 : 2;
            look.waiting = !worker.hung;
            look.section = worker.hung ? "load" : "all_reduce";
        }
        result.push_back(agent::position_of(look));
    }
    return result;
}

std::uint64_t highest_step(const Workers& all, std::uint32_t host) {
    std::uint64_t step = 0;
    for (const Worker& worker : all.hosts[host].workers) {
        step = worker.alive && worker.elastic ? std::max(step, worker.step) : step;
    }
    return step;
}

// ---- The end of a round.

void pause_workers(Workers& all, std::uint32_t host, RoundId round, Leaving leaving) {
    all.hosts[host].paused = std::max(all.hosts[host].paused, round);
    all.hosts[host].leaving = leaving;
    for (Worker& worker : all.hosts[host].workers) {
        leave_if_told(all, worker);
    }
}

void end_round(Workers& all, std::uint32_t host, RoundId round,
               std::span<const std::uint32_t> local_ranks) {
    all.hosts[host].ended = std::max(all.hosts[host].ended, round);
    for (const std::uint32_t local_rank : local_ranks) {
        if (Worker* const worker = find_alive(all, host, local_rank)) {
            abort_worker(all, *worker);
        }
    }
}

void on_worker_suspends(Workers& all, std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find_worker(all, host, tag);
    if (worker == nullptr || worker->hung || worker->round == RoundId::none ||
        all.world.now < worker->suspends_at) {
        return;
    }
    const bool noticed =
        worker->group != kNoGroup && all.groups[worker->group].broken &&
        (worker->stage == WorkerStage::forming || worker->stage == WorkerStage::training);
    if (worker->stage != WorkerStage::aborting && !noticed) {
        return;
    }
    worker->group = kNoGroup;
    const RoundId round = std::exchange(worker->round, RoundId::none);
    worker->stage = WorkerStage::idle;
    all.world.tell([&](Checker& c) { c.on_worker_suspended(all.world.now, host, round); });
    all.world.note([&] {
        return worker->node + ": worker " + std::to_string(worker->local_rank) +
               " suspends after round " + std::to_string(number(round)) + ", step " +
               std::to_string(worker->step);
    });
    speak(all, *worker,
          agent::WorkerSuspended{worker->local_rank, round, worker->at_boundary, worker->step});
    leave_if_told(all, *worker);
}

}  // namespace regroup::simulation
