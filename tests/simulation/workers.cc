// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/workers.h"

#include <csignal>
#include <utility>

namespace regroup::simulation {

namespace {

using rendezvous::RoundId;

constexpr Duration kReapMax = std::chrono::milliseconds(3);
constexpr Duration kOrphanMax = std::chrono::milliseconds(100);
constexpr Duration kKillMax = std::chrono::milliseconds(20);

}  // namespace

void Workers::launch(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                     const rendezvous::Assignment& assignment, std::uint32_t count) {
    const auto key = std::pair(assignment.round, assignment.master_port);
    auto found = group_by_master_.find(key);
    if (found == group_by_master_.end()) {
        Group& group = groups_.emplace_back();
        group.finish_at =
            world_.now + between(world_.random, world_.plan.work_min, world_.plan.work_max);
        found = group_by_master_.emplace(key, groups_.size() - 1).first;
    }
    const std::size_t group = found->second;
    hosts_[host].resize(count);
    for (std::uint32_t local_rank = 0; local_rank < count; ++local_rank) {
        world_.tell([&](Checker& c) { c.on_worker_start(world_.now, host, assignment.round); });
        Worker& worker = hosts_[host][local_rank];
        worker = {true, next_life_++,     incarnation,
                  node, assignment.round, assignment.first_rank + local_rank,
                  group};
        groups_[group].members.emplace_back(host, local_rank);
        const Plan& plan = world_.plan;
        if (plan.start_error > 0 && world_.random.chance(plan.start_error)) {
            schedule_end(world_.now, host, local_rank, Cause::start_error);
        } else if (plan.crash_at_start > 0 && world_.random.chance(plan.crash_at_start)) {
            schedule_end(world_.now + between(world_.random, {}, std::chrono::seconds(1)), host,
                         local_rank, Cause::fault);
        }
        const Instant success =
            std::max(groups_[group].finish_at, world_.now + std::chrono::milliseconds(1)) +
            between(world_.random, {}, plan.skew_max);
        schedule_end(success, host, local_rank, Cause::success);
        if (plan.failure_interval > Duration::zero()) {
            const Instant failure = world_.now + exponential(world_.random, plan.failure_interval);
            if (failure < success) {
                schedule_end(failure, host, local_rank, Cause::fault);
            }
        }
        if (groups_[group].broken) {
            schedule_consequence(host, local_rank);
        }
    }
}

void Workers::schedule_end(Instant at, std::uint32_t host, std::uint32_t local_rank, Cause cause) {
    const std::uint64_t life = hosts_[host][local_rank].life;
    world_.queue.push(
        at, EventKind::worker_end, host,
        life << 16U | std::uint64_t{local_rank} << 8U | static_cast<std::uint64_t>(cause));
}

void Workers::schedule_consequence(std::uint32_t host, std::uint32_t local_rank) {
    if (!world_.random.chance(world_.plan.hang)) {
        schedule_end(world_.now + between(world_.random, {}, world_.plan.consequence_max), host,
                     local_rank, Cause::consequence);
    }
}

void Workers::signal(std::uint32_t host, RoundId round, bool force) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].size(); ++local_rank) {
        const Worker& worker = hosts_[host][local_rank];
        if (!worker.alive || worker.round != round) {
            continue;
        }
        if (force) {
            schedule_end(world_.now + between(world_.random, {}, kKillMax), host, local_rank,
                         Cause::kill);
        } else if (!world_.random.chance(world_.plan.ignores_term)) {
            schedule_end(world_.now + between(world_.random, {}, world_.plan.drain_max), host,
                         local_rank, Cause::term);
        }
    }
}

void Workers::orphan(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].size(); ++local_rank) {
        if (hosts_[host][local_rank].alive) {
            schedule_end(world_.now + between(world_.random, {}, kOrphanMax), host, local_rank,
                         Cause::kill);
        }
    }
}

void Workers::vanish(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].size(); ++local_rank) {
        if (hosts_[host][local_rank].alive) {
            end(host, local_rank, Cause::kill, false);
        }
    }
}

void Workers::hit(std::uint32_t host) {
    for (std::uint32_t local_rank = 0; local_rank < hosts_[host].size(); ++local_rank) {
        if (hosts_[host][local_rank].alive) {
            end(host, local_rank, Cause::fault, true);
            return;
        }
    }
}

void Workers::on_end(std::uint32_t host, std::uint64_t tag) {
    const auto cause = static_cast<Cause>(tag & 0xffU);
    const auto local_rank = static_cast<std::uint32_t>(tag >> 8U & 0xffU);
    if (local_rank >= hosts_[host].size()) {
        return;
    }
    const Worker& worker = hosts_[host][local_rank];
    if (!worker.alive || worker.life != tag >> 16U) {
        return;
    }
    const bool own_fault = cause == Cause::fault || cause == Cause::start_error;
    if (own_fault && world_.plan.failure_interval == Duration::zero() &&
        world_.plan.crash_at_start <= 0 && world_.plan.start_error <= 0) {
        return;  // Scheduled before the calm.
    }
    // A collective job does not succeed for one when it has failed for another.
    if (cause == Cause::success && groups_[worker.group].broken) {
        return;
    }
    end(host, local_rank, cause, true);
}

void Workers::end(std::uint32_t host, std::uint32_t local_rank, Cause cause, bool tell_agent) {
    Worker& worker = hosts_[host][local_rank];
    worker.alive = false;
    const bool own_fault = cause == Cause::fault || cause == Cause::start_error;
    world_.tell([&](Checker& c) { c.on_worker_end(world_.now, host, worker.round, own_fault); });
    world_.note([&] {
        static constexpr const char* kCauses[] = {"finishes",           "fails by itself",
                                                  "fails by its peers", "cannot start",
                                                  "ends on SIGTERM",    "ends on SIGKILL"};
        return worker.node + ": worker " + std::to_string(local_rank) + " of round " +
               std::to_string(number(worker.round)) + " " + kCauses[static_cast<int>(cause)];
    });
    world_.trace.mix(static_cast<std::uint64_t>(cause) << 32U | host << 8U | local_rank);
    Exit exit{host, worker.incarnation, {worker.round, local_rank, std::nullopt}};
    if (cause != Cause::success) {
        rendezvous::WorkerFailure failure;
        failure.rank = worker.rank;
        failure.local_rank = local_rank;
        failure.node = worker.node;
        failure.pid = static_cast<std::int64_t>(worker.life);
        switch (cause) {
            case Cause::start_error:
                failure.start_error = "no such file";
                break;
            case Cause::fault:
                failure.signal = SIGSEGV;
                break;
            case Cause::term:
                failure.signal = SIGTERM;
                break;
            case Cause::kill:
                failure.signal = SIGKILL;
                break;
            default:
                failure.exit_code = 1;
        }
        exit.event.failure = std::move(failure);
    }
    const std::size_t group = worker.group;
    if (tell_agent) {
        std::uint32_t record = static_cast<std::uint32_t>(exits_.size());
        if (free_exits_.empty()) {
            exits_.push_back(std::move(exit));
        } else {
            record = free_exits_.back();
            free_exits_.pop_back();
            exits_[record] = std::move(exit);
        }
        world_.queue.push(world_.now + between(world_.random, {}, kReapMax), EventKind::worker_gone,
                          record);
    }
    if (cause != Cause::success) {
        break_group(group);
    }
}

void Workers::break_group(std::size_t group) {
    if (std::exchange(groups_[group].broken, true)) {
        return;
    }
    for (const auto& [host, local_rank] : groups_[group].members) {
        if (local_rank < hosts_[host].size()) {
            const Worker& worker = hosts_[host][local_rank];
            if (worker.alive && worker.group == group) {
                schedule_consequence(host, local_rank);
            }
        }
    }
}

Workers::Exit Workers::take(std::uint32_t record) {
    free_exits_.push_back(record);
    return std::move(exits_[record]);
}

std::size_t Workers::alive_count(std::uint32_t host) const {
    std::size_t count = 0;
    for (const Worker& worker : hosts_[host]) {
        count += worker.alive ? 1U : 0U;
    }
    return count;
}

}  // namespace regroup::simulation
