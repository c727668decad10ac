// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/simulation/job_log.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// One question to etcd, and its answer.
struct EtcdCall {
    enum class Kind : std::uint8_t {
        campaign,    ///< Be the leader, if nobody is.
        keep_alive,  ///< Stay it.
        append,      ///< Records, if `epoch` still leads.
    };
    Kind kind = Kind::campaign;
    std::uint32_t daemon = 0;
    std::uint64_t life = 0;   ///< Of the daemon; an answer to an earlier life is for nobody.
    Instant asked{};          ///< A lease is counted from here.
    std::uint64_t epoch = 0;  ///< Under which it asks; in the answer, the one that leads.
    std::uint64_t job = 0;
    std::size_t position = 0;
    std::vector<Record> batch;
    /// Begins the job with this, if it is not begun.
    std::optional<rendezvous::JobPolicy> begin;

    bool granted = false;
    std::uint32_t leader = 0;
};

/// A linearizable store with leases, as two daemons see etcd: what reaches it takes place at one
/// instant, in one order. Calls and answers take time, and vanish while the way is cut. Whoever
/// appends must hold the lease under the epoch by which it won it: a leader that has been deposed
/// is refused, whatever it believes.
class SimulatedEtcd {
   public:
    SimulatedEtcd(World& world, JobLog& log) : world_(world), log_(log) {}

    void call(EtcdCall call);
    /// Carries the call out, and sends the answer on its way.
    void on_arrival(std::uint32_t id);
    [[nodiscard]] const EtcdCall& peek(std::uint32_t id) const { return calls_[id]; }
    /// Takes an answer off the wire. Nothing if it was lost.
    [[nodiscard]] std::optional<EtcdCall> take(std::uint32_t id);

    void set_down(bool down) { down_ = down; }
    void cut(std::uint32_t daemon, bool cut);
    [[nodiscard]] bool reachable(std::uint32_t daemon) const;
    /// What the records of the last append make the job's machine say.
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
