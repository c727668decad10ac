// SPDX-License-Identifier: Apache-2.0
//
// The workers of one round as a group: its members, when it can form, how it ends or breaks.
#include <algorithm>
#include <utility>

#include "tests/simulation/workers.h"

namespace regroup::simulation {

using rendezvous::RoundId;
using worker_link::Leaving;

namespace {

constexpr Duration kFormMax = std::chrono::milliseconds(300);
constexpr double kLossAtBoundary = 0.1;

std::size_t group_of(Workers& all, const rendezvous::Assignment& assignment) {
    const auto key = std::pair(assignment.round, assignment.master_port);
    auto found = all.group_by_master.find(key);
    // A daemon without durable state may reuse a round number that group rank 0 has never heard of,
    // and whose workers are gone.
    if (found != all.group_by_master.end() && all.groups[found->second].broken &&
        present(all, found->second).empty()) {
        all.group_by_master.erase(found);
        found = all.group_by_master.end();
    }
    if (found == all.group_by_master.end()) {
        WorkerGroup& group = all.groups.emplace_back();
        group.round = assignment.round;
        group.world_size = assignment.world_size;
        group.finish_at = all.world.now + between(all.world.random, all.world.plan.work_min,
                                                  all.world.plan.work_max);
        found = all.group_by_master.emplace(key, all.groups.size() - 1).first;
    }
    return found->second;
}

}  // namespace

// From here on the worker belongs to that round, even if it cannot act yet.
void enter_round(Workers& all, Worker& worker, const rendezvous::Assignment& assignment) {
    worker.round = assignment.round;
    worker.rank = assignment.first_rank + worker.local_rank;
    worker.group = group_of(all, assignment);
    worker.assigned_at = all.world.now;
    worker.resumed = worker.awaits_outcome = worker.at_boundary = false;
    worker.suspends_at = Instant::max();
    all.groups[worker.group].members.emplace_back(worker.host, worker.local_rank);
    all.world.tell(
        [&](Checker& c) { c.on_worker_start(all.world.now, worker.host, assignment.round); });
}

std::vector<Worker*> present(Workers& all, std::size_t index) {
    std::vector<Worker*> result;
    for (const auto& [host, local_rank] : all.groups[index].members) {
        Worker& worker = all.hosts[host].workers[local_rank];
        if (worker.alive && worker.group == index) {
            result.push_back(&worker);
        }
    }
    return result;
}

void ready_to_form(Workers& all, std::size_t index) {
    const WorkerGroup& group = all.groups[index];
    const std::vector<Worker*> workers = present(all, index);
    const bool ready = !group.broken && !group.formed && workers.size() == group.world_size &&
                       std::all_of(workers.begin(), workers.end(), [](const Worker* worker) {
                           return worker->stage == WorkerStage::forming;
                       });
    if (ready) {
        all.world.queue.push(all.world.now + between(all.world.random, {}, kFormMax),
                             EventKind::group_formed, static_cast<std::uint32_t>(index));
        if (all.severed && all.world.now < all.severed->until && !all.severed->silent) {
            all.world.queue.push(all.world.now + between(all.world.random, {}, 4 * kFormMax),
                                 EventKind::group_severed, static_cast<std::uint32_t>(index));
        }
    }
}

void leave_group(Workers& all, Worker& worker) {
    const std::size_t group = std::exchange(worker.group, kNoGroup);
    if (group != kNoGroup) {
        break_group(all, group, false);
    }
}

void break_group(Workers& all, std::size_t index, bool by_death) {
    all.groups[index].bereaved = all.groups[index].bereaved || by_death;
    if (std::exchange(all.groups[index].broken, true)) {
        return;
    }
    for (Worker* worker : present(all, index)) {
        if (worker->stage != WorkerStage::starting) {
            schedule_consequence(all, *worker);
        }
    }
}

// Kills a member when only some ranks know the result of the last vote. This is rare, and hard for
// ranks that save their state.
void lose_one_at_boundary(Workers& all, const WorkerGroup& group) {
    if (!all.world.second_random.chance(kLossAtBoundary)) {
        return;
    }
    const auto& [host, local_rank] =
        group.members[all.world.second_random.below(group.members.size())];
    if (Worker* const worker = find_alive(all, host, local_rank)) {
        schedule_end(all,
                     all.world.now + between(all.world.second_random, {}, all.world.plan.apply_max),
                     *worker, WorkerEnd::fault);
    }
}

bool leaves_at_boundary(const Workers& all, std::uint32_t host, const WorkerGroup& group) {
    return all.hosts[host].leaving != Leaving::no && all.hosts[host].paused >= group.round;
}

void pass_boundary(Workers& all, std::size_t index) {
    const WorkerGroup& group = all.groups[index];
    for (Worker* worker : present(all, index)) {
        if (leaves_at_boundary(all, worker->host, group)) {
            worker->stage = WorkerStage::leaving;
            all.world.tell([&](Checker& c) {
                c.on_saved(all.world.now, worker->host, worker->life, {index, group.round},
                           worker->step);
            });
            schedule_end(all, all.world.now + worker->boundary_pause, *worker, WorkerEnd::success);
        } else {
            worker->stage = WorkerStage::aborting;
            schedule_suspends(all, *worker, {}, worker->boundary_pause);
        }
        worker->group = kNoGroup;  // It leaves in order: its peers do not notice a loss.
    }
}

}  // namespace regroup::simulation
