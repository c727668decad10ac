// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "tests/simulation/world.h"

namespace regroup::simulation {

/// Every worker process of a run, on all hosts: how long it works, how it dies, and what its death
/// does to its peers. Tells the agent of each end a moment later, as a pidfd would.
class Workers {
   public:
    explicit Workers(World& world) : world_(world), hosts_(world.plan.hosts) {}

    void launch(std::uint32_t host, std::uint64_t incarnation, const rendezvous::NodeId& node,
                const rendezvous::Assignment& assignment, std::uint32_t count);
    void signal(std::uint32_t host, rendezvous::RoundId round, bool force);
    /// The agent is gone: the parent-death signal ends its workers within a moment.
    void orphan(std::uint32_t host);
    /// The host is gone: its workers are, at once, and nobody is told.
    void vanish(std::uint32_t host);
    /// One worker of the host, if any, is hit by a segfault.
    void hit(std::uint32_t host);

    /// The event that this class scheduled: a worker's life ends now, if it has not ended already.
    void on_end(std::uint32_t host, std::uint64_t tag);
    struct Exit {
        std::uint32_t host = 0;
        std::uint64_t incarnation = 0;
        agent::WorkerExited event;
    };
    [[nodiscard]] const Exit& peek(std::uint32_t record) const { return exits_[record]; }
    [[nodiscard]] Exit take(std::uint32_t record);

    [[nodiscard]] std::size_t alive_count(std::uint32_t host) const;

   private:
    enum class Cause : std::uint8_t { success, fault, consequence, start_error, term, kill };
    struct Worker {
        bool alive = false;
        std::uint64_t life = 0;  ///< Distinguishes this process from earlier ones in its place.
        std::uint64_t incarnation = 0;
        rendezvous::NodeId node;
        rendezvous::RoundId round = rendezvous::RoundId::none;
        std::uint32_t rank = 0;
        std::size_t group = 0;
    };
    /// The workers of one round, which talk to each other.
    struct Group {
        bool broken = false;  ///< One of them is dead: the others fail or hang.
        Instant finish_at{};
        std::vector<std::pair<std::uint32_t, std::uint32_t>> members;  ///< Host and local rank.
    };
    void schedule_end(Instant at, std::uint32_t host, std::uint32_t local_rank, Cause cause);
    void schedule_consequence(std::uint32_t host, std::uint32_t local_rank);
    void end(std::uint32_t host, std::uint32_t local_rank, Cause cause, bool tell_agent);
    void break_group(std::size_t group);

    World& world_;
    std::vector<std::vector<Worker>> hosts_;
    std::vector<Group> groups_;
    std::map<std::pair<rendezvous::RoundId, std::uint16_t>, std::size_t> group_by_master_;
    std::vector<Exit> exits_;
    std::vector<std::uint32_t> free_exits_;
    std::uint64_t next_life_ = 1;
};

}  // namespace regroup::simulation
