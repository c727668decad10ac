// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "rendezvous/core/rendezvous_core.h"
#include "tests/simulation/job_log.h"
#include "tests/simulation/simulated_etcd.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// A daemon: the real rendezvous core of one job behind a shell that does with connections what
/// the real server does, in simulated time.
///
/// What it remembers when it is killed is the plan's `durability`: nothing; or what it has written
/// into a journal, or into etcd while it led. The core is given each event as it comes, and nobody
/// hears of what follows before the event is recorded, behind all that came earlier. In etcd's case
/// that takes a while, in which more may come; and if it is refused, the core is given up with all
/// that it has been told since. A report that decides nothing is answered at once, and recorded a
/// moment later, or never. A daemon that comes back needs a while to read what was recorded, in
/// which what nodes say waits.
class SimulatedDaemon {
   public:
    SimulatedDaemon(World& world, JobLog& log, SimulatedEtcd& etcd, std::uint32_t index)
        : world_(world), log_(log), etcd_(etcd), index_(index) {}

    void start();
    void kill();
    /// Kills it the next time that it has recorded something and not yet sent what follows; it
    /// returns after `outage`.
    void kill_midway(Duration outage) { dies_midway_for_ = outage; }
    void standby_midway() { dies_midway_for_.reset(); }
    void pause(Instant until) { paused_until_ = std::max(paused_until_, until); }
    void stop_job(const std::string& author, const std::string& reason);
    void operator_drain(const std::string& node);
    /// The next join begins a new job.
    void forget_job();

    void on_arrival(Arrival arrival);
    void on_timer(std::uint64_t life);
    void on_duty(std::uint64_t life);
    void on_etcd_answer(EtcdCall call);
    /// What has decided nothing is recorded now.
    void on_sweep(std::uint64_t life);
    /// It has read what was recorded.
    void on_has_read(std::uint64_t reading);

    [[nodiscard]] bool up() const noexcept { return up_; }
    [[nodiscard]] bool has_sessions() const noexcept { return !sessions_.empty(); }
    [[nodiscard]] Instant paused_until() const noexcept { return paused_until_; }
    /// Since when it has been up, not paused, and in charge, with nothing that it waits for.
    /// Instant::max() while it is not.
    [[nodiscard]] Instant awake_since() const noexcept;
    /// Null while it is not in charge of a job.
    [[nodiscard]] const rendezvous::RendezvousCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    /// True once the job is closed, as far as this daemon knows.
    [[nodiscard]] bool closed_job() const { return core_ && core_->verdict().has_value(); }

   private:
    struct Lease {
        std::uint64_t epoch = 0;
        Instant until{};  ///< As far as this daemon can know; etcd lets it end no sooner.
    };

    /// A daemon whose records take longer than this to be accepted is not in charge of anything.
    static constexpr Duration kPrompt = std::chrono::milliseconds(500);

    [[nodiscard]] bool keeps_log() const { return world_.plan.durability != Durability::memory; }
    [[nodiscard]] bool is_replicated() const {
        return world_.plan.durability == Durability::replicated;
    }
    /// True if it may decide at this moment.
    [[nodiscard]] bool leads();
    [[nodiscard]] bool speaks_over(std::uint32_t connection) const;
    [[nodiscard]] Instant job_now() const { return world_.now + offset_; }

    /// What waits to be recorded: the last of the records, and what it made the core say.
    struct Step {
        std::vector<Record> records;
        rendezvous::Effects effects;
    };

    void hear(Arrival arrival);
    void join(std::uint32_t connection, rendezvous::Join join);
    void turn_away(std::uint32_t connection);
    /// The core is told of `event`, or that time has passed.
    void submit(std::optional<rendezvous::Event> event);
    /// A record that may wait for the next that may not.
    void defer(journal::Entry entry);
    /// Records all that waits, unless etcd has yet to answer.
    void record_all();
    void send_append();
    /// All that is pending is recorded, with these effects.
    void recorded(const std::vector<rendezvous::Effects>& effects);
    /// True if it died.
    [[nodiscard]] bool dies_midway();
    void send(rendezvous::Effects effects);
    /// It is in charge, once it has read what was recorded.
    void take_over();
    void restore();
    void resign();
    [[nodiscard]] EtcdCall question(EtcdCall::Kind kind) const;
    void arm();

    World& world_;
    JobLog& log_;
    SimulatedEtcd& etcd_;
    std::uint32_t index_;
    bool up_ = false;
    std::uint64_t life_ = 0;
    Instant in_charge_since_{};
    Instant paused_until_{};
    Instant timer_at_ = Instant::max();
    std::optional<Duration> dies_midway_for_;
    std::optional<rendezvous::RendezvousCore> core_;
    std::map<rendezvous::NodeId, std::uint32_t> sessions_;  ///< Connection by node.
    std::string explained_;

    RoutineFold fold_;
    std::vector<Record> deferred_;
    bool sweeps_ = false;      ///< It will, in a moment.
    std::deque<Step> outbox_;  ///< Stepped over, and not on the way into the log yet.
    bool reads_ = false;       ///< What was recorded.
    std::uint64_t reading_ = 0;
    std::vector<Arrival> words_;  ///< That came meanwhile.
    Duration offset_{};           ///< From this daemon's clock to the job's timeline.
    std::optional<Lease> lease_;
    std::optional<std::uint32_t> known_leader_;
    std::vector<Step> pending_;  ///< On its way into the log.
    Instant pending_since_{};
    std::size_t position_ = 0;                    ///< Where `pending_` goes.
    std::optional<rendezvous::JobPolicy> begin_;  ///< The job is begun with the next append.
};

}  // namespace regroup::simulation
