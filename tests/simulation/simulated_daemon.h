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

/// A daemon: the real rendezvous core of one job, in a simulated shell that handles connections as
/// the real server does, in simulated time.
///
/// The plan's `durability` decides what survives a kill: nothing, the journal, or the records in
/// etcd. The core gets each event as it comes. Its effects are sent only after the event is
/// recorded, in order. With etcd that takes a while, and more events may come meanwhile. If etcd
/// refuses a record, the daemon discards the core with all later events. A report without effect is
/// answered at once, and recorded a moment later or never. A restarted daemon needs a while to read
/// its records. Messages of nodes wait meanwhile.
class SimulatedDaemon {
   public:
    SimulatedDaemon(World& world, JobLog& log, SimulatedEtcd& etcd, std::uint32_t index)
        : world_(world), log_(log), etcd_(etcd), index_(index) {}

    void start();
    void kill();
    /// Kills it the next time that it has recorded an event and not yet sent the effects. It
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
    /// Writes the deferred records.
    void on_sweep(std::uint64_t life);
    /// It has read its records.
    void on_has_read(std::uint64_t reading);

    [[nodiscard]] bool up() const noexcept { return up_; }
    [[nodiscard]] bool has_sessions() const noexcept { return !sessions_.empty(); }
    [[nodiscard]] Instant paused_until() const noexcept { return paused_until_; }
    /// Since when it has been up, not paused, leading, and not waiting for a record. Instant::max()
    /// otherwise.
    [[nodiscard]] Instant awake_since() const noexcept;
    /// Null while it does not lead a job.
    [[nodiscard]] const rendezvous::RendezvousCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    /// True once the job is closed, as far as this daemon knows.
    [[nodiscard]] bool closed_job() const { return core_ && core_->verdict().has_value(); }

   private:
    struct Lease {
        std::uint64_t epoch = 0;
        Instant until{};  ///< As far as this daemon can know. In etcd the lease ends no sooner.
    };

    /// A daemon whose records take longer than this to be accepted does not count as leading.
    static constexpr Duration kPrompt = std::chrono::milliseconds(500);

    [[nodiscard]] bool keeps_log() const { return world_.plan.durability != Durability::memory; }
    [[nodiscard]] bool is_replicated() const {
        return world_.plan.durability == Durability::replicated;
    }
    /// True if it may take decisions at this moment.
    [[nodiscard]] bool leads();
    [[nodiscard]] bool speaks_over(std::uint32_t connection) const;
    [[nodiscard]] Instant job_now() const { return world_.now + offset_; }

    /// A step of the core that waits to be recorded: its records, and the effects of the last one.
    struct Step {
        std::vector<Record> records;
        rendezvous::Effects effects;
    };

    void hear(Arrival arrival);
    void join(std::uint32_t connection, rendezvous::Join join);
    void turn_away(std::uint32_t connection);
    /// Gives the core `event`, or only the present time.
    void submit(std::optional<rendezvous::Event> event);
    /// Keeps a record that may be written later.
    void defer(journal::Entry entry);
    /// Records all waiting steps, unless an etcd answer is still outstanding.
    void record_all();
    void send_append();
    /// All pending steps are recorded, with these effects.
    void recorded(const std::vector<rendezvous::Effects>& effects);
    /// True if it died.
    [[nodiscard]] bool dies_midway();
    void send(rendezvous::Effects effects);
    /// Takes the lead, once it has read the records.
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
    bool sweeps_ = false;      ///< A sweep is scheduled.
    std::deque<Step> outbox_;  ///< Steps that are not on the way into the log yet.
    bool reads_ = false;       ///< It is reading its records.
    std::uint64_t reading_ = 0;
    std::vector<Arrival> words_;  ///< Messages that came meanwhile.
    Duration offset_{};           ///< From this daemon's clock to the job's timeline.
    std::optional<Lease> lease_;
    std::optional<std::uint32_t> known_leader_;
    std::vector<Step> pending_;  ///< On its way into the log.
    Instant pending_since_{};
    std::size_t position_ = 0;  ///< Where `pending_` goes.
    /// The next append begins the job with this policy.
    std::optional<rendezvous::JobPolicy> begin_;
};

}  // namespace regroup::simulation
