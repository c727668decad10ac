// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/allowance.h"
#include "rendezvous/server/drain_waits.h"
#include "rendezvous/server/held_entries.h"
#include "rendezvous/server/session.h"
#include "rendezvous/view/job_history.h"
#include "rendezvous/view/job_telemetry.h"
#include "rendezvous/view/job_view.h"
#include "rendezvous/view/slow_ranks.h"

namespace regroup::rendezvous {

/// A job of the daemon: its core, its timeline, and the connections of its nodes.
///
/// The core sees instants of the job's own timeline. It begins with the job and continues when
/// another process takes over the job, so that the journal can be replayed.
class Job {
   public:
    /// `now` is an instant of the daemon's clock.
    Job(journal::JobKey key_in, JobPolicy policy, Instant now);

    /// Begins a new job of the same id after one that `is_done_without`. Its rounds have higher
    /// numbers, so that a round of the old job cannot be mistaken for one of the new. `entries`
    /// receives the events that its core has got so far.
    [[nodiscard]] static Job following(const Job& old, JobPolicy policy, std::int64_t wall_ms,
                                       Instant now, Duration retention,
                                       std::vector<journal::Entry>& entries);

    /// Takes from `old`, a restored job of the same id, what `following` would have taken. False if
    /// there is nothing to take.
    bool remember_former(const Job& old, Duration retention);
    [[nodiscard]] bool remembers_former() const noexcept { return former_.has_value(); }
    /// The key of the previous job once its entries are no longer needed.
    [[nodiscard]] std::optional<journal::JobKey> take_outdated(Instant now);

    /// Converts the daemon's instant to the job's timeline, in whole microseconds.
    [[nodiscard]] Instant timeline(Instant now) const;
    [[nodiscard]] Instant next_deadline() const;

    /// Records that the node has joined.
    void remember(const NodeId& node);
    /// About how many bytes the records of nodes that have joined take.
    [[nodiscard]] std::size_t attendance_bytes() const noexcept { return attendance_.bytes; }

    /// The node's connection from now on. Returns the one that it replaces, if any.
    std::shared_ptr<Session> connect(const NodeId& node, std::shared_ptr<Session> session);
    /// The node has no connection any more.
    void disconnect(const NodeId& node, Instant now);
    /// Since when no node has been connected.
    [[nodiscard]] Instant deserted_since() const noexcept { return deserted_since_; }
    /// True if no node is connected, and none can come back to a round or a verdict.
    [[nodiscard]] bool is_expendable() const;

    /// Records the last event that the core got.
    void told(const Event& event);
    /// Records what a node tells about the training in `round`, if it is a member of that round.
    void hear(const NodeId& node, RoundId round, Telemetry said, Instant now);
    void hear(const NodeId& node, RoundId round, SnapshotFacts said, Instant now);
    /// Returns the ranks that are slow since now.
    [[nodiscard]] std::vector<SlowRank> hear(const NodeId& node, RoundId round,
                                             const WorkWindow& said);

    /// True if this job has ended, or all its nodes have left it, and `join` is from a node that
    /// was not in it and whose launcher began after that. Such a node wants a new job.
    [[nodiscard]] bool is_done_without(const Join& join, Instant now) const;

    /// The verdict of the previous job, for a node that was in that job and in no other.
    [[nodiscard]] const Verdict* former_verdict(const Join& join, Instant now) const;

    /// The view that people have of the job; without the state of its journal.
    [[nodiscard]] JobView view(Instant now) const;

    [[nodiscard]] const std::unordered_map<NodeId, std::shared_ptr<Session>>& sessions()
        const noexcept {
        return sessions_;
    }

    journal::JobKey key;
    RendezvousCore core;
    Instant due_at = Instant::max();      ///< Of its entry in the job table's index.
    Instant idle_since = Instant::max();  ///< Closed, or without a node, since then.
    /// The round in which the journal of a restored job ended, until a node has shown that it lacks
    /// a later one.
    std::optional<RoundId> journal_ended_in;
    std::string last_log;
    NodeAllowances allowances;
    HeldEntries held_entries;
    DrainWaits drain_waits;
    JobHistory history;
    JobTelemetry telemetry;
    JobSnapshots snapshots;
    SlowRanks slow_ranks;

   private:
    friend class JobRestoration;

    struct Former {
        journal::JobKey key;
        Verdict verdict;
        RoundId round = RoundId::none;
        std::set<NodeId> nodes;
        Instant until{};
    };
    /// The nodes that have been in the job.
    struct Attendance {
        std::set<NodeId> nodes;  // All that have ever joined, up to a bound.
        std::size_t bytes = 0;   // Their memory, approximately.
        bool left = false;       // All of them have left in order.

        void add(const NodeId& node);
        void note(const Event& event, const RendezvousCore& after);
    };

    Job(journal::JobKey key_in, RendezvousCore core_in, Attendance attendance,
        JobHistory history_in, Duration shift, Instant now);

    Duration shift_{};  // From the daemon's instants to the job's.
    std::unordered_map<NodeId, std::shared_ptr<Session>> sessions_;
    Instant deserted_since_;  // max: a node is connected.
    Attendance attendance_;
    std::optional<Former> former_;
};

/// Restores a job to the state after its last entry, a few entries at a time: all of them may take
/// seconds, during which the daemon must serve others.
class JobRestoration {
   public:
    explicit JobRestoration(journal::KeptJob kept)
        : reader_(std::move(kept)), history_(reader_.key().id) {}

    /// Reads some entries; false once there are no more. Errors: those of JobReader.
    Result<bool> read();
    /// The restored job, once all entries are read. `wall_ms` gives the time passed since the last
    /// entry. Requires that there was an entry.
    [[nodiscard]] Job finish(std::int64_t wall_ms, Instant now) &&;

    [[nodiscard]] const journal::JobKey& key() const noexcept { return reader_.key(); }
    [[nodiscard]] std::int64_t last_wall_ms() const noexcept { return reader_.last_wall_ms(); }

   private:
    journal::JobReader reader_;
    Job::Attendance attendance_;
    JobHistory history_;
};

}  // namespace regroup::rendezvous
