// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>

#include "rendezvous/core/rendezvous_core.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// The daemon: the real rendezvous core of one job behind a shell that does with connections what
/// the real server does, in simulated time. When it is killed it remembers nothing.
class SimulatedDaemon {
   public:
    explicit SimulatedDaemon(World& world) : world_(world) {}

    void start();
    void kill();
    void pause(Instant until) { paused_until_ = std::max(paused_until_, until); }
    void operator_stop();
    /// The next join begins a new job.
    void forget_job();

    void on_arrival(Arrival arrival);
    void on_timer(std::uint64_t life);

    [[nodiscard]] bool up() const noexcept { return up_; }
    [[nodiscard]] Instant paused_until() const noexcept { return paused_until_; }
    [[nodiscard]] Instant awake_since() const noexcept;
    [[nodiscard]] const rendezvous::RendezvousCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    /// True if `connection` is the one over which the daemon speaks to its node.
    [[nodiscard]] bool speaks_over(std::uint32_t connection) const;
    /// True once this life of the daemon has closed the job.
    [[nodiscard]] bool closed_job() const { return core_ && core_->verdict().has_value(); }

   private:
    void join(std::uint32_t connection, rendezvous::Join join);
    void step(const rendezvous::Event& event);
    void apply(rendezvous::Effects effects);
    void arm();

    World& world_;
    bool up_ = false;
    std::uint64_t life_ = 0;
    Instant started_at_{};
    Instant paused_until_{};
    Instant timer_at_ = Instant::max();
    std::optional<rendezvous::RendezvousCore> core_;
    std::map<rendezvous::NodeId, std::uint32_t> sessions_;  ///< Connection by node.
    std::string explained_;
};

}  // namespace regroup::simulation
