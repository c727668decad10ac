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

}  // namespace

void Workers::sever(std::uint32_t host, Instant until) {
    for (const Worker& worker : hosts_[host].workers) {
        if (!worker.alive || !worker.elastic || worker.group == kNoGroup) {
            continue;
        }
        const auto& members = groups_[worker.group].members;
        const std::uint32_t other = members[world_.random.below(members.size())].first;
        if (world_.random.chance(0.3)) {
            severed_ =
                Severed{host, other, until, other != host && world_.second_random.chance(0.4)};
        }
        sever_group(worker.group, host, other);
        return;
    }
}

void Workers::heal() {
    severed_.reset();
}

bool Workers::is_apart(const Group& group) const {
    const auto has = [&](std::uint32_t host) {
        return std::any_of(group.members.begin(), group.members.end(),
                           [&](const auto& member) { return member.first == host; });
    };
    return severed_ && severed_->silent && world_.now < severed_->until &&
           has(severed_->one_host) && has(severed_->other_host);
}

// The kernels retry, and now and then one gives up.
void Workers::form_later(std::uint32_t index) {
    Group& group = groups_[index];
    if (group.still_since == Instant::max()) {
        group.still_since = world_.now;
        world_.note([&] {
            return "round " + std::to_string(number(group.round)) +
                   " cannot form: two of its hosts do not reach each other";
        });
        world_.queue.push(world_.now + world_.plan.hang_limit, EventKind::group_standstill, index);
    } else if (world_.second_random.chance(0.02)) {
        sever_group(index, severed_->one_host, severed_->other_host);
        return;
    }
    world_.queue.push(world_.now + kAgainPause, EventKind::group_formed, index);
}

void Workers::on_severed(std::uint32_t index) {
    if (severed_ && world_.now < severed_->until) {
        sever_group(index, severed_->one_host, severed_->other_host);
    }
}

void Workers::sever_group(std::size_t index, std::uint32_t one_host, std::uint32_t other_host) {
    Group& group = groups_[index];
    if (group.broken || group.severed) {
        return;
    }
    std::array<std::pair<std::uint32_t, Worker*>, 2> ends{};  // With its host.
    std::vector<std::uint64_t> lives;
    for (const auto& [host, local_rank] : group.members) {
        Worker& worker = hosts_[host].workers[local_rank];
        if (!worker.alive || worker.group != index ||
            (worker.stage != Stage::forming && worker.stage != Stage::training)) {
            continue;
        }
        lives.push_back(worker.life);
        if (ends[0].second == nullptr && host == one_host) {
            ends[0] = {host, &worker};
        } else if (ends[1].second == nullptr && host == other_host) {
            ends[1] = {host, &worker};
        }
    }
    if (ends[0].second == nullptr || ends[1].second == nullptr) {
        return;
    }
    group.severed = true;
    ends[0].second->lost_peer = ends[1].second->rank;
    ends[1].second->lost_peer = ends[0].second->rank;
    // Usually both ends notice at once.
    const std::uint64_t who = world_.random.below(10);
    Instant first = Instant::max();
    for (std::size_t end = 0; end < ends.size(); ++end) {
        if (who == end) {
            continue;
        }
        const auto& [host, worker] = ends[end];
        const bool late = world_.random.chance(0.3);
        const Instant at =
            world_.now + between(world_.random, {}, late ? kLateNoticeMax : kNoticeMax);
        first = std::min(first, at);
        const auto local_rank = static_cast<std::uint32_t>(worker - hosts_[host].workers.data());
        world_.queue.push(at, EventKind::worker_bereft, host, tag_of(*worker, local_rank));
    }
    world_.note([&] {
        return "the connection between rank " + std::to_string(ends[0].second->rank) +
               " and rank " + std::to_string(ends[1].second->rank) + " of round " +
               std::to_string(number(group.round)) + " breaks";
    });
    world_.tell([&](Checker& c) {
        c.on_severed(
            world_.now,
            {{index, group.round}, lives, ends[0].second->rank, ends[1].second->rank, first});
    });
}

// The worker reports it and gives up the round, which also releases its peers. A hanging worker
// still has a thread that watches its connections.
void Workers::on_bereft(std::uint32_t host, std::uint64_t tag) {
    Worker* worker = find(host, tag);
    if (worker == nullptr || worker->group == kNoGroup || !groups_[worker->group].severed ||
        (worker->stage != Stage::forming && worker->stage != Stage::training)) {
        return;
    }
    const std::size_t group = worker->group;
    speak(*worker, host,
          agent::WorkerLostPeer{static_cast<std::uint32_t>(tag & 0xffU), groups_[group].round,
                                worker->lost_peer, "closed the connection"});
    if (!worker->hung) {
        break_group(group, false);
    }
}

}  // namespace regroup::simulation
