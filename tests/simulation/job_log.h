// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/journal/journal.h"

namespace regroup::simulation {

/// One input of a job's state machine, with its time on the job's timeline.
struct Record {
    journal::Entry entry;
    bool folded = false;  ///< A heartbeat or a report without effect, answered already.
};

/// Heartbeats since the last record. Only the last one of each node is kept. It enters the log just
/// before the next record.
class RoutineFold {
   public:
    void add(journal::Entry entry);
    /// Returns the kept heartbeats in the order of time, and clears them.
    [[nodiscard]] std::vector<Record> take();
    void clear() { kept_.clear(); }

   private:
    std::vector<std::pair<rendezvous::NodeId, Record>> kept_;
};

/// The records of one job, which survive every daemon, and a state machine that gets only these
/// records. Every daemon must decide as this machine does. A restarted daemon starts from a copy of
/// it.
class JobLog {
   public:
    /// `machine`: the state machine of a job that has just begun.
    void begin(rendezvous::RendezvousCore machine);
    void forget();

    /// Returns the effects that the machine answers with. Requires a begun job.
    rendezvous::Effects append(const journal::Entry& entry);

    /// The number of this log's job.
    [[nodiscard]] std::uint64_t job() const noexcept { return job_; }
    [[nodiscard]] bool begun() const noexcept { return machine_.has_value(); }
    /// The number of records.
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
/// Appends and tells the checkers the decisions. They are final from here on, sent or not. Returns
/// the effects of each record.
std::vector<rendezvous::Effects> commit(World& world, JobLog& log,
                                        const std::vector<Record>& batch);

}  // namespace regroup::simulation
