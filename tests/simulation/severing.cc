// SPDX-License-Identifier: Apache-2.0
//
// Live workers lose their connections to each other.
#include <algorithm>
#include <array>
#include <utility>

#include "tests/simulation/workers.h"

namespace regroup::simulation {

using rendezvous::RoundId;

namespace {

constexpr Duration kNoticeMax = std::chrono::milliseconds(3);
// Without a reset, a worker notices the end of a connection only by a time-out.
constexpr Duration kLateNoticeMax = std::chrono::seconds(2);
// Pause between two attempts to connect.
constexpr Duration kAgainPause = std::chrono::seconds(1);

void sever_group(Workers& all, std::size_t index, std::uint32_t one_host,
                 std::uint32_t other_host) {
    WorkerGroup& group = all.groups[index];
    if (group.broken || group.severed) {
        return;
    }
    std::array<Worker*, 2> ends{};
    std::vector<std::uint64_t> lives;
    for (Worker* worker : present(all, index)) {
        if (worker->stage != WorkerStage::forming && worker->stage != WorkerStage::training) {
            continue;
        }
        lives.push_back(worker->life);
        if (ends[0] == nullptr && worker->host == one_host) {
            ends[0] = worker;
        } else if (ends[1] == nullptr && worker->host == other_host) {
            ends[1] = worker;
        }
    }
    if (ends[0] == nullptr || ends[1] == nullptr) {
        return;
    }
    group.severed = true;
    ends[0]->lost_peer = ends[1]->rank;
    ends[1]->lost_peer = ends[0]->rank;
    // Usually both ends notice at once.
    const std::uint64_t who = all.world.random.below(10);
    Instant first = Instant::max();
    for (std::size_t end = 0; end < ends.size(); ++end) {
        if (who == end) {
            continue;
        }
        const bool late = all.world.random.chance(0.3);
        const Instant at =
            all.world.now + between(all.world.random, {}, late ? kLateNoticeMax : kNoticeMax);
        first = std::min(first, at);
        all.world.queue.push(at, EventKind::worker_bereft, ends[end]->host, tag_of(*ends[end]));
    }
    all.world.note([&] {
        return "the connection between rank " + std::to_string(ends[0]->rank) + " and rank " +
               std::to_string(ends[1]->rank) + " of round " + std::to_string(number(group.round)) +
               " breaks";
    });
    all.world.tell([&](Checker& c) {
        c.on_severed(all.world.now,
                     {{index, group.round}, lives, ends[0]->rank, ends[1]->rank, first});
    });
}

}  // namespace

void sever_workers(Workers& all, std::uint32_t host, Instant until) {
    for (const Worker& worker : all.hosts[host].workers) {
        if (!worker.alive || !worker.elastic || worker.group == kNoGroup) {
            continue;
        }
        const auto& members = all.groups[worker.group].members;
        const std::uint32_t other = members[all.world.random.below(members.size())].first;
        if (all.world.random.chance(0.3)) {
            all.severed = SeveredHosts{host, other, until,
                                       other != host && all.world.second_random.chance(0.4)};
        }
        sever_group(all, worker.group, host, other);
        return;
    }
}

bool is_apart(const Workers& all, const WorkerGroup& group) {
    const auto has = [&](std::uint32_t host) {
        return std::any_of(group.members.begin(), group.members.end(),
                           [&](const auto& member) { return member.first == host; });
    };
    return all.severed && all.severed->silent && all.world.now < all.severed->until &&
           has(all.severed->one_host) && has(all.severed->other_host);
}

// The kernels retry, and now and then one gives up.
void form_later(Workers& all, std::uint32_t index) {
    WorkerGroup& group = all.groups[index];
    if (group.still_since == Instant::max()) {
        group.still_since = all.world.now;
        all.world.note([&] {
            return "round " + std::to_string(number(group.round)) +
                   " cannot form: two of its hosts do not reach each other";
        });
        all.world.queue.push(all.world.now + all.world.plan.hang_limit, EventKind::group_standstill,
                             index);
    } else if (all.world.second_random.chance(0.02)) {
        sever_group(all, index, all.severed->one_host, all.severed->other_host);
        return;
    }
    all.world.queue.push(all.world.now + kAgainPause, EventKind::group_formed, index);
}

void on_group_severed(Workers& all, std::uint32_t index) {
    if (all.severed && all.world.now < all.severed->until) {
        sever_group(all, index, all.severed->one_host, all.severed->other_host);
    }
}

// The worker reports it and gives up the round, which also releases its peers. A hanging worker
// still has a thread that watches its connections.
void on_worker_bereft(Workers& all, std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find_worker(all, host, tag);
    if (worker == nullptr || worker->group == kNoGroup || !all.groups[worker->group].severed ||
        (worker->stage != WorkerStage::forming && worker->stage != WorkerStage::training)) {
        return;
    }
    const std::size_t group = worker->group;
    speak(all, *worker,
          agent::WorkerLostPeer{worker->local_rank, all.groups[group].round, worker->lost_peer,
                                "closed the connection"});
    if (!worker->hung) {
        break_group(all, group, false);
    }
}

}  // namespace regroup::simulation
