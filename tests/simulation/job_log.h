// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/journal/journal.h"

namespace regroup::simulation {

/// What one job's machine was given, and when on the job's timeline.
struct Record {
    journal::Entry entry;
    bool folded = false;  ///< A heartbeat, or a report that decided nothing: it has been answered.
};

/// The routine heartbeats since the last record: only the last one of each node is kept, and goes
/// into the log just before the next record.
class RoutineFold {
   public:
    void add(journal::Entry entry);
    /// What was kept, in the order of time; nothing is kept any more.
    [[nodiscard]] std::vector<Record> take();
    void clear() { kept_.clear(); }

   private:
    std::vector<std::pair<rendezvous::NodeId, Record>> kept_;
};

/// What survives every daemon: the records of one job, as the state of a machine that is given
/// nothing but these records, in their order: whatever a daemon decides must be what this
/// machine decides, and a daemon that comes back goes on from a copy of it.
class JobLog {
   public:
    void begin(rendezvous::JobPolicy policy);
    void forget();

    /// Returns what it makes the machine say. Requires a begun job.
    rendezvous::Effects append(const journal::Entry& entry);

    /// Which job this is the log of.
    [[nodiscard]] std::uint64_t job() const noexcept { return job_; }
    [[nodiscard]] bool begun() const noexcept { return machine_.has_value(); }
    /// So many records.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] Instant last_at() const noexcept { return last_at_; }
    [[nodiscard]] const rendezvous::RendezvousCore& machine() const { return *machine_; }

   private:
    std::optional<rendezvous::RendezvousCore> machine_;
    std::size_t size_ = 0;
    Instant last_at_ = Instant::min();
    std::uint64_t job_ = 0;
};

struct World;
/// Appends, and tells the checkers what was decided by it: from here on it counts, sent or not.
/// Returns the effects of each record.
std::vector<rendezvous::Effects> commit(World& world, JobLog& log,
                                        const std::vector<Record>& batch);

}  // namespace regroup::simulation
