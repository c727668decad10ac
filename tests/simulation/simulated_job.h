// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/rendezvous_core.h"
#include "tests/simulation/job_log.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// The steps of a daemon that are not in the log yet: kept back, waiting, or on their way into it.
struct Recording {
    /// A step of the core: its records, and the effects of the last one.
    struct Step {
        std::vector<Record> records;
        rendezvous::Effects effects;
    };

    /// Keeps a record that may be written later.
    void defer(journal::Entry entry);
    /// The deferred records are to be written, and then the effects of the last one sent.
    void write(rendezvous::Effects effects);
    /// The waiting steps go on their way. False if none waits, or others are still on their way.
    [[nodiscard]] bool depart(Instant now);
    [[nodiscard]] std::vector<Record> batch() const;
    /// True if records take so long to be accepted that the daemon does not count as leading.
    [[nodiscard]] bool is_late(Instant now) const;

    RoutineFold fold{};
    std::vector<Record> deferred{};
    std::vector<Step> outbox{};   ///< Steps that are not on the way into the log yet.
    std::vector<Step> pending{};  ///< On its way into the log.
    Instant pending_since{};
    std::size_t position = 0;  ///< Where `pending` goes.
    /// The next append begins the job, in this state.
    std::optional<rendezvous::RendezvousCore> begin{};
};

/// The job of one simulated daemon: the real rendezvous core, its connections to the nodes, and
/// what is recorded of it.
class SimulatedJob {
   public:
    SimulatedJob(World& world, JobLog& log, std::uint32_t daemon)
        : world_(world), log_(log), daemon_(daemon) {}

    /// Null while the daemon does not lead a job.
    [[nodiscard]] const rendezvous::RendezvousCore* core() const noexcept {
        return core_ ? &*core_ : nullptr;
    }
    /// True once the job is closed, as far as this daemon knows.
    [[nodiscard]] bool closed() const { return core_ && core_->verdict().has_value(); }
    [[nodiscard]] Recording& recording() noexcept { return recording_; }
    [[nodiscard]] const Recording& recording() const noexcept { return recording_; }
    /// When the core wants to be advanced, in the world's time.
    [[nodiscard]] Instant next_deadline() const;

    /// Takes the state from the log. False if the log has no job.
    [[nodiscard]] bool restore();
    void clear();
    /// Gives the core `event`, or only the present time. True if a record was deferred.
    bool step(std::optional<rendezvous::Event> event);
    /// All pending steps are recorded, with these effects.
    void recorded(const std::vector<rendezvous::Effects>& effects);

    [[nodiscard]] bool has_sessions() const noexcept { return !sessions_.empty(); }
    [[nodiscard]] bool speaks_over(std::uint32_t connection) const;
    /// Opens a session, and replaces an older one of the same node.
    void open_session(std::uint32_t connection, const rendezvous::Join& join);
    void end_session(const rendezvous::NodeId& node) { sessions_.erase(node); }

   private:
    void send(rendezvous::Effects effects);

    World& world_;
    JobLog& log_;
    std::uint32_t daemon_;
    std::optional<rendezvous::RendezvousCore> core_{};
    std::map<rendezvous::NodeId, std::uint32_t> sessions_{};  ///< Connection by node.
    Recording recording_{};
    Duration offset_{};  ///< From this daemon's clock to the job's timeline.
    std::string explained_{};
};

}  // namespace regroup::simulation
