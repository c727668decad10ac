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

}  // namespace

std::size_t Workers::group_of(const rendezvous::Assignment& assignment) {
    const auto key = std::pair(assignment.round, assignment.master_port);
    auto found = group_by_master_.find(key);
    // A daemon without durable state may reuse a round number that group rank 0 has never heard of,
    // and whose workers are gone.
    if (found != group_by_master_.end() && is_gone(found->second)) {
        group_by_master_.erase(found);
        found = group_by_master_.end();
    }
    if (found == group_by_master_.end()) {
        Group& group = groups_.emplace_back();
        group.round = assignment.round;
        group.world_size = assignment.world_size;
        group.finish_at =
            world_.now + between(world_.random, world_.plan.work_min, world_.plan.work_max);
        found = group_by_master_.emplace(key, groups_.size() - 1).first;
    }
    return found->second;
}

bool Workers::is_gone(std::size_t index) const {
    const Group& group = groups_[index];
    return group.broken &&
           std::none_of(group.members.begin(), group.members.end(), [&](const auto& member) {
               const Worker& worker = hosts_[member.first].workers[member.second];
               return worker.alive && worker.group == index;
           });
}

// From here on the worker belongs to that round, even if it cannot act yet.
void Workers::enter(std::uint32_t host, std::uint32_t local_rank,
                    const rendezvous::Assignment& assignment) {
    Worker& worker = hosts_[host].workers[local_rank];
    worker.round = assignment.round;
    worker.rank = assignment.first_rank + local_rank;
    worker.group = group_of(assignment);
    worker.assigned_at = world_.now;
    worker.resumed = worker.awaits_outcome = worker.at_boundary = false;
    worker.suspends_at = Instant::max();
    groups_[worker.group].members.emplace_back(host, local_rank);
    world_.tell([&](Checker& c) { c.on_worker_start(world_.now, host, assignment.round); });
}

std::vector<Workers::Worker*> Workers::present(const Group& group, std::size_t index) {
    std::vector<Worker*> result;
    for (const auto& [host, local_rank] : group.members) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.group == index) {
            result.push_back(&worker);
        }
    }
    return result;
}

void Workers::ready_to_form(std::size_t index) {
    const Group& group = groups_[index];
    const std::vector<Worker*> workers = present(group, index);
    const bool ready = !group.broken && !group.formed && workers.size() == group.world_size &&
                       std::all_of(workers.begin(), workers.end(), [](const Worker* worker) {
                           return worker->stage == Stage::forming;
                       });
    if (ready) {
        world_.queue.push(world_.now + between(world_.random, {}, kFormMax),
                          EventKind::group_formed, static_cast<std::uint32_t>(index));
        if (severed_ && world_.now < severed_->until && !severed_->silent) {
            world_.queue.push(world_.now + between(world_.random, {}, 4 * kFormMax),
                              EventKind::group_severed, static_cast<std::uint32_t>(index));
        }
    }
}

void Workers::leave_group(Worker& worker) {
    const std::size_t group = std::exchange(worker.group, kNoGroup);
    if (group != kNoGroup) {
        break_group(group, false);
    }
}

void Workers::break_group(std::size_t index, bool by_death) {
    groups_[index].bereaved = groups_[index].bereaved || by_death;
    if (std::exchange(groups_[index].broken, true)) {
        return;
    }
    for (const auto& [host, local_rank] : groups_[index].members) {
        const Worker& worker = hosts_[host].workers[local_rank];
        if (worker.alive && worker.group == index && worker.stage != Stage::starting) {
            schedule_consequence(host, local_rank);
        }
    }
}

// Kills a member when only some ranks know the result of the last vote. This is rare, and hard for
// ranks that save their state.
void Workers::lose_one_at_boundary(const Group& group) {
    if (!world_.second_random.chance(kLossAtBoundary)) {
        return;
    }
    const auto& [host, local_rank] =
        group.members[world_.second_random.below(group.members.size())];
    if (hosts_[host].workers[local_rank].alive) {
        schedule_end(world_.now + between(world_.second_random, {}, world_.plan.apply_max), host,
                     local_rank, Cause::fault);
    }
}

bool Workers::leaves_at_boundary(std::uint32_t host, const Group& group) const {
    return hosts_[host].leaving != Leaving::no && hosts_[host].paused >= group.round;
}

void Workers::pass_boundary(std::size_t index) {
    const Group& group = groups_[index];
    for (const auto& [host, local_rank] : group.members) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (!worker.alive || worker.group != index) {
            continue;
        }
        if (leaves_at_boundary(host, group)) {
            worker.stage = Stage::leaving;
            world_.tell([&](Checker& c) {
                c.on_saved(world_.now, host, worker.life, {index, group.round}, worker.step);
            });
            schedule_end(world_.now + worker.boundary_pause, host, local_rank, Cause::success);
        } else {
            worker.stage = Stage::aborting;
            schedule_suspends(host, local_rank, {}, worker.boundary_pause);
        }
        worker.group = kNoGroup;  // It leaves in order: its peers do not notice a loss.
    }
}

}  // namespace regroup::simulation
