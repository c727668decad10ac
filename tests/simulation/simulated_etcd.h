// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/simulation/job_log.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// One request to etcd, and its answer.
struct EtcdCall {
    enum class Kind : std::uint8_t {
        campaign,    ///< Become the leader, if there is none.
        keep_alive,  ///< Stay the leader.
        append,      ///< Append records, if `epoch` still leads.
    };
    Kind kind = Kind::campaign;
    std::uint32_t daemon = 0;
    std::uint64_t life = 0;   ///< Of the daemon; answers to an earlier life are dropped.
    Instant asked{};          ///< A lease runs from here.
    std::uint64_t epoch = 0;  ///< The epoch of the request; in the answer, the leading one.
    std::uint64_t job = 0;
    std::size_t position = 0;
    std::vector<Record> batch;
    /// Begins the job in this state, if it has not begun.
    std::optional<rendezvous::RendezvousCore> begin;

    bool granted = false;
    std::uint32_t leader = 0;
};

/// A linearizable store with leases, as two daemons see etcd. Each call takes effect at one
/// instant, in one order. Calls and answers take time, and are lost while the connection is cut. An
/// append must carry the epoch of the current lease: a deposed leader is refused.
class SimulatedEtcd {
   public:
    SimulatedEtcd(World& world, JobLog& log) : world_(world), log_(log) {}

    void call(EtcdCall call);
    /// Carries out the call, and sends the answer.
    void on_arrival(std::uint32_t id);
    [[nodiscard]] const EtcdCall& peek(std::uint32_t id) const { return calls_[id]; }
    /// Takes an answer off the wire. Empty if it was lost.
    [[nodiscard]] std::optional<EtcdCall> take(std::uint32_t id);

    void set_down(bool down) { down_ = down; }
    void cut(std::uint32_t daemon, bool cut);
    [[nodiscard]] bool reachable(std::uint32_t daemon) const;
    /// The effects of the records of the last append.
    [[nodiscard]] const std::vector<rendezvous::Effects>& last_effects() const { return effects_; }

   private:
    void carry_out(EtcdCall& call);
    [[nodiscard]] bool leads(const EtcdCall& call) const;
    [[nodiscard]] Duration delay();

    World& world_;
    JobLog& log_;
    std::vector<EtcdCall> calls_;
    std::vector<std::uint32_t> free_;
    std::vector<bool> cut_;
    bool down_ = false;
    std::vector<rendezvous::Effects> effects_;
    std::uint64_t epoch_ = 0;
    std::uint32_t leader_ = 0;
    Instant lease_until_{};
};

}  // namespace regroup::simulation
