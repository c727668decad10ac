// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tests/simulation/simulated_etcd.h"
#include "tests/simulation/simulated_job.h"

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
        : world_(world), log_(log), etcd_(etcd), index_(index), job_(world, log, index) {}

    void start();
    void kill();
    /// Kills it the next time that it has recorded an event and not yet sent the effects. It
    /// returns after `outage`. Without `outage`, it is not killed then.
    void kill_midway(std::optional<Duration> outage) { dies_midway_for_ = outage; }
    /// Gives an operator's event to the job, if it leads one.
    void operate(const std::string& note, rendezvous::Event event);
    /// The next join begins a new job.
    void forget_job();

    void on_arrival(Arrival arrival);
    void on_etcd_answer(EtcdCall call);
    /// One of its own events: timer, duty, sweep or read.
    void on_due(EventKind kind, std::uint64_t tag);

    [[nodiscard]] bool up() const noexcept { return up_; }
    [[nodiscard]] Uptime& uptime() noexcept { return uptime_; }
    /// Since when it has been up, not paused, leading, and not waiting for a record. Instant::max()
    /// otherwise.
    [[nodiscard]] Instant awake_since() const noexcept;
    [[nodiscard]] const SimulatedJob& job() const noexcept { return job_; }

   private:
    struct Lease {
        std::uint64_t epoch = 0;
        Instant until{};  ///< As far as this daemon can know. In etcd the lease ends no sooner.
    };

    /// True if it may take decisions at this moment.
    [[nodiscard]] bool leads();
    void hear(Arrival arrival);
    /// Gives the core `event`, or only the present time.
    void submit(std::optional<rendezvous::Event> event);
    /// Records all waiting steps, unless an etcd answer is still outstanding.
    void record();
    void send_append();
    /// All pending steps are recorded, with these effects.
    void recorded(const std::vector<rendezvous::Effects>& effects);
    /// True if it died.
    [[nodiscard]] bool dies_midway();
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
    SimulatedJob job_;
    bool up_ = false;
    std::uint64_t life_ = 0;
    Uptime uptime_;  ///< Of its being in charge.
    Instant timer_at_ = Instant::max();
    bool sweeps_ = false;  ///< A sweep is scheduled.
    std::optional<Duration> dies_midway_for_;
    std::uint64_t reading_ = 0;
    std::optional<std::vector<Arrival>> words_;  ///< Messages that came while it reads its records.
    std::optional<Lease> lease_;
    std::optional<std::uint32_t> known_leader_;
};

}  // namespace regroup::simulation
