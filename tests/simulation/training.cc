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

}  // namespace

void Workers::assign(std::uint32_t host, const rendezvous::Assignment& assignment,
                     std::span<const std::uint32_t> local_ranks) {
    hosts_[host].leaving = worker_link::Leaving::no;
    for (const std::uint32_t local_rank : local_ranks) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (!worker.alive) {
            // The agent has not heard of its end yet, and will count it as an end in this round.
            world_.tell([&](Checker& c) {
                c.on_worker_start(world_.now, host, assignment.round);
                c.on_worker_end(world_.now, host, assignment.round, worker.own_fault);
            });
            continue;
        }
        enter(host, local_rank, assignment);
        if (worker.stage == Stage::idle && !worker.elastic) {
            train_plainly(host, local_rank);
        } else if (worker.stage == Stage::idle) {
            worker.stage = Stage::forming;
            if (groups_[worker.group].broken) {
                schedule_consequence(host, local_rank);
            }
            ready_to_form(worker.group);
        } else {
            worker.place = assignment;
        }
    }
}

void Workers::on_ready(std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find(host, tag);
    if (worker == nullptr || (worker->elastic && worker->stage != Stage::starting)) {
        return;
    }
    const auto local_rank = static_cast<std::uint32_t>(tag & 0xffU);
    speak(*worker, host, agent::WorkerAttached{local_rank, worker->elastic, true});
    if (worker->launched_in == RoundId::none) {
        speak(*worker, host, agent::WorkerSuspended{local_rank, RoundId::none, false});
    }
    worker->place.reset();
    if (!worker->elastic) {
        if (worker->stage == Stage::starting && worker->group != kNoGroup) {
            train_plainly(host, local_rank);
        } else if (worker->stage == Stage::starting) {
            worker->stage = Stage::idle;
        }
        return;
    }
    worker->stage = worker->group == kNoGroup ? Stage::idle : Stage::forming;
    if (worker->group == kNoGroup) {
        return;
    }
    if (hosts_[host].ended >= worker->round) {
        abort(host, local_rank);
    } else if (groups_[worker->group].broken) {
        schedule_consequence(host, local_rank);
    } else {
        ready_to_form(worker->group);
    }
}

// All ranks take over the most advanced state.
void Workers::on_formed(std::uint32_t index) {
    Group& group = groups_[index];
    if (group.broken || group.severed || group.formed) {
        return;
    }
    if (is_apart(group)) {
        form_later(index);
        return;
    }
    group.formed = true;
    end_standstill(group, index);
    std::vector<Worker*> workers = present(group, index);
    std::uint64_t source = 0;
    std::vector<MemberView> members;
    for (const auto& [host, local_rank] : group.members) {
        const Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.group == index) {
            source = std::max(source, worker.step);
            members.push_back({host, worker.life, worker.step});
        }
    }
    for (Worker* worker : workers) {
        worker->step = source;
        worker->stage = Stage::training;
    }
    group.formed_at = world_.now;
    group.finish_at = std::max(group.finish_at, world_.now + world_.job.step_time);
    world_.note([&] {
        return "round " + std::to_string(number(group.round)) + " has formed, at step " +
               std::to_string(source);
    });
    world_.tell(
        [&](Checker& c) { c.on_group_formed(world_.now, {index, group.round}, source, members); });
    world_.queue.push(world_.now + world_.job.step_time, EventKind::group_vote, index);
}

void Workers::on_vote(std::uint32_t index) {
    Group& group = groups_[index];
    if (group.broken || group.severed) {
        return;
    }
    const std::vector<Worker*> workers = present(group, index);
    if (std::any_of(workers.begin(), workers.end(), [](const Worker* w) { return w->hung; })) {
        group.still_since = world_.now;
        world_.queue.push(world_.now + world_.plan.hang_limit, EventKind::group_standstill, index);
        return;
    }
    const bool over = world_.now >= group.finish_at && !world_.plan.endless;
    group.outcome = over ? Group::Outcome::finish : Group::Outcome::go_on;
    group.to_apply = static_cast<std::uint32_t>(workers.size());
    for (const auto& [host, local_rank] : group.members) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (!worker.alive || worker.group != index) {
            continue;
        }
        worker.awaits_outcome = true;
        if (hosts_[host].paused >= group.round && group.outcome == Group::Outcome::go_on) {
            group.outcome = Group::Outcome::suspend;
        }
        world_.queue.push(world_.now + between(world_.random, {}, world_.plan.apply_max),
                          EventKind::worker_apply, host, tag_of(worker, local_rank));
    }
    if (group.outcome == Group::Outcome::suspend) {
        lose_one_at_boundary(group);
    }
    world_.tell([&](Checker& c) {
        c.on_vote(world_.now, {index, group.round}, group.outcome == Group::Outcome::suspend);
        if (group.outcome == Group::Outcome::finish) {
            c.on_finished(world_.now, {index, group.round});
        }
    });
}

void Workers::on_apply(std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find(host, tag);
    // A rank that has read the end of the round from its page keeps its old state.
    if (worker == nullptr || worker->stage != Stage::training || !worker->awaits_outcome ||
        hosts_[host].ended >= worker->round) {
        return;
    }
    const auto local_rank = static_cast<std::uint32_t>(tag & 0xffU);
    const std::size_t index = worker->group;
    Group& group = groups_[index];
    worker->awaits_outcome = false;
    ++worker->step;
    world_.trace.mix(worker->step);
    world_.tell([&](Checker& c) {
        c.on_commit(world_.now, host, worker->life, {index, group.round}, worker->step);
    });
    if (!std::exchange(worker->resumed, true)) {
        const Duration first_step = world_.now - group.formed_at;
        speak(
            *worker, host,
            agent::WorkerResumed{local_rank,
                                 {group.round, worker->step, group.formed_at - worker->assigned_at,
                                  Duration::zero(), first_step}});
    }
    --group.to_apply;
    switch (group.outcome) {
        case Group::Outcome::go_on:
            if (group.to_apply == 0 && !group.broken && !group.severed) {
                world_.queue.push(world_.now + world_.job.step_time, EventKind::group_vote,
                                  static_cast<std::uint32_t>(index));
            }
            break;
        case Group::Outcome::suspend: {
            const bool leaves = leaves_at_boundary(host, group);
            worker->at_boundary = true;
            worker->boundary_pause = between(world_.random, {}, leaves ? kSaveMax : kSuspensionMax);
            if (group.broken) {
                schedule_consequence(host, local_rank);
            } else if (group.to_apply == 0 && !group.severed) {
                pass_boundary(index);
            }
            return;
        }
        case Group::Outcome::finish:
            worker->finished = true;
            worker->stage = Stage::leaving;
            world_.tell([&](Checker& c) { c.on_process_finished(world_.now, worker->life); });
            // From here on it ends with its round, as a program without the SDK.
            speak(*worker, host, between(world_.second_random, {}, kFinishedMax),
                  agent::WorkerAttached{local_rank, false, true});
            schedule_end(world_.now + between(world_.random, {}, world_.plan.skew_max), host,
                         local_rank, Cause::success);
            break;
    }
    if (group.outcome == Group::Outcome::finish) {
        worker->group = kNoGroup;  // It leaves in order: its peers do not notice a loss.
    }
}

void Workers::on_standstill(std::uint32_t index) {
    const Group& group = groups_[index];
    if (group.broken || group.severed ||
        world_.now < after(group.still_since, world_.plan.hang_limit)) {
        return;
    }
    if (!group.formed) {
        world_.tell([&](Checker& c) { c.on_stuck(world_.now, {index, group.round}); });
    }
    // Every agent reads the pages of its own workers. At about this time it sees that one stands
    // still, or that all of them wait for a worker of another node.
    std::map<std::uint32_t, const Worker*> suspects;  // By host.
    for (const auto& [host, local_rank] : group.members) {
        const Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.group == index) {
            const auto [known, is_new] = suspects.emplace(host, &worker);
            known->second = worker.hung ? &worker : known->second;
        }
    }
    for (const auto& [host, worker] : suspects) {
        if (worker->hung || world_.random.chance(0.7)) {
            say(host, worker->incarnation, between(world_.random, {}, kLookMax),
                agent::HangSuspected{
                    group.round,
                    rendezvous::Hang{worker->rank,
                                     "rank " + std::to_string(worker->rank) + " stands still",
                                     !worker->hung, world_.plan.hang_limit}});
        }
    }
    world_.queue.push(world_.now + world_.plan.hang_limit, EventKind::group_standstill, index);
}

// All ranks go on, and the agents see it.
void Workers::end_standstill(Group& group, std::size_t index) {
    const Instant since = std::exchange(group.still_since, Instant::max());
    if (world_.now < after(since, world_.plan.hang_limit)) {
        return;
    }
    std::map<std::uint32_t, std::uint64_t> incarnations;  // By host.
    for (const auto& [host, local_rank] : group.members) {
        const Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.group == index) {
            incarnations[host] = worker.incarnation;
        }
    }
    for (const auto& [host, incarnation] : incarnations) {
        // After the events that they have seen before.
        say(host, incarnation, kLookMax + between(world_.second_random, {}, kLookMax),
            agent::HangSuspected{group.round, std::nullopt});
    }
}

std::vector<rendezvous::RankPosition> Workers::positions(std::uint32_t host) const {
    std::vector<rendezvous::RankPosition> result;
    const std::vector<Worker>& workers = hosts_[host].workers;
    for (const Worker& worker : workers) {
        if (!worker.alive || worker.round == RoundId::none) {
            continue;
        }
        agent::WorkerLook look;
        look.rank = worker.rank;
        look.step = worker.step;
        if (worker.stage == Stage::forming) {
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

std::uint64_t Workers::highest_step(std::uint32_t host) const {
    std::uint64_t step = 0;
    for (const Worker& worker : hosts_[host].workers) {
        step = worker.alive && worker.elastic ? std::max(step, worker.step) : step;
    }
    return step;
}

// ---- The end of a round.

void Workers::pause(std::uint32_t host, RoundId round, Leaving leaving) {
    hosts_[host].paused = std::max(hosts_[host].paused, round);
    hosts_[host].leaving = leaving;
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].workers.size(); ++local_rank) {
        leave_if_told(host, local_rank);
    }
}

void Workers::leave_if_told(std::uint32_t host, std::uint32_t local_rank) {
    Worker& worker = hosts_[host].workers[local_rank];
    if (hosts_[host].leaving == Leaving::at_once && worker.alive && worker.elastic &&
        worker.stage == Stage::idle && worker.group == kNoGroup) {
        worker.stage = Stage::leaving;
        world_.tell([&](Checker& c) { c.on_left(world_.now, host, worker.life, worker.step); });
        schedule_end(world_.now + between(world_.random, {}, kSaveMax), host, local_rank,
                     Cause::success);
    }
}

void Workers::end_round(std::uint32_t host, RoundId round,
                        std::span<const std::uint32_t> local_ranks) {
    hosts_[host].ended = std::max(hosts_[host].ended, round);
    for (const std::uint32_t local_rank : local_ranks) {
        if (local_rank < hosts_[host].workers.size() && hosts_[host].workers[local_rank].alive) {
            abort(host, local_rank);
        }
    }
}

void Workers::abort(std::uint32_t host, std::uint32_t local_rank) {
    Worker& worker = hosts_[host].workers[local_rank];
    if (worker.stage != Stage::forming && worker.stage != Stage::training) {
        return;
    }
    world_.tell([&](Checker& c) {
        c.on_aborted(world_.now, host, worker.life, worker.round, worker.stage == Stage::training);
    });
    const bool trains = std::exchange(worker.stage, Stage::aborting) == Stage::training;
    Duration work{};
    if (trains && world_.plan.own_work > Duration::zero() && world_.second_random.chance(0.4)) {
        work = between(world_.second_random, {}, world_.plan.own_work);
        const Duration look = between(world_.second_random, {}, kLookMax);
        if (look < work) {
            say(host, worker.incarnation, look,
                agent::WorkersAtWork{worker.round, world_.plan.own_work - look});
        }
    }
    if (!worker.hung && !world_.random.chance(world_.plan.never_suspends)) {
        schedule_suspends(host, local_rank, world_.plan.suspension_max, work);
    }
    leave_group(worker);
}

void Workers::on_suspends(std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find(host, tag);
    if (worker == nullptr || worker->hung || worker->round == RoundId::none ||
        world_.now < worker->suspends_at) {
        return;
    }
    const bool noticed = worker->group != kNoGroup && groups_[worker->group].broken &&
                         (worker->stage == Stage::forming || worker->stage == Stage::training);
    if (worker->stage != Stage::aborting && !noticed) {
        return;
    }
    worker->group = kNoGroup;
    const RoundId round = std::exchange(worker->round, RoundId::none);
    worker->stage = Stage::idle;
    world_.tell([&](Checker& c) { c.on_worker_suspended(world_.now, host, round); });
    world_.note([&] {
        return worker->node + ": worker " + std::to_string(tag & 0xffU) + " suspends after round " +
               std::to_string(number(round)) + ", step " + std::to_string(worker->step);
    });
    speak(*worker, host,
          agent::WorkerSuspended{static_cast<std::uint32_t>(tag & 0xffU), round,
                                 worker->at_boundary, worker->step});
    leave_if_told(host, static_cast<std::uint32_t>(tag & 0xffU));
}

}  // namespace regroup::simulation
