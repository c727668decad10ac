// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/drain_waits.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// A job of the daemon: its core, its timeline, and the connections of its nodes.
///
/// The core sees instants of the job's own timeline, which begins with the job and goes on where it
/// was when another process takes the job over; so what is kept of it can be stepped over again.
class Job {
   public:
    /// `now` is the daemon's.
    Job(journal::JobKey key_in, JobPolicy policy, Instant now);

    /// Begins a new job of the same id after one that `is_done_without`. Its rounds have higher
    /// numbers, so that nobody takes one of the old job for one of the new. `entries` are what its
    /// core has been told until now.
    [[nodiscard]] static Job following(const Job& old, JobPolicy policy, std::int64_t wall_ms,
                                       Instant now, Duration retention,
                                       std::vector<journal::Entry>& entries);

    /// Knows of `old`, of the same id and kept as well, what `following` would have told it. False
    /// if that is nothing.
    bool remember_former(const Job& old, Duration retention);
    [[nodiscard]] bool remembers_former() const noexcept { return former_.has_value(); }
    /// What is kept of the job before this one, and is of no use any more.
    [[nodiscard]] std::optional<journal::JobKey> take_outdated(Instant now);

    /// The daemon's instant as one of the job's, in whole microseconds; and back.
    [[nodiscard]] Instant timeline(Instant now) const;
    [[nodiscard]] Instant next_deadline() const;

    /// Notes that the node has joined.
    void remember(const NodeId& node);

    /// Notes what the core has been told last.
    void told(const Event& event);

    /// Whether this job has ended well or been drained, or all its nodes have left it, and `join`
    /// is from a node that had no part in it, which means a new job and not the end of this one.
    [[nodiscard]] bool is_done_without(const Join& join) const;

    /// The verdict of the job before this one, for a node that had a part in that one and in no
    /// other.
    [[nodiscard]] const Verdict* former_verdict(const Join& join, Instant now) const;

    /// A heartbeat that says nothing new waits for the next entry that does.
    void hold(const NodeId& node, journal::Entry entry);
    /// So does a report by which nothing was decided, for a moment.
    void defer(journal::Entry entry);
    /// What is to be kept now: `entry` and what waited for it, in order.
    [[nodiscard]] std::vector<journal::Entry> with_held(journal::Entry entry);
    [[nodiscard]] std::size_t deferred_count() const noexcept { return deferred_.size(); }
    [[nodiscard]] std::vector<journal::Entry> take_deferred();

    journal::JobKey key;
    RendezvousCore core;
    std::map<NodeId, std::shared_ptr<Session>> sessions;
    Instant idle_since = Instant::max();  ///< Closed, or without a node, since then.
    std::string last_log;
    DrainWaits drain_waits;

   private:
    friend class JobRestoration;

    struct Former {
        journal::JobKey key;
        Verdict verdict;
        RoundId round = RoundId::none;
        std::set<NodeId> nodes;
        Instant until{};
    };
    /// Who has been there.
    struct Attendance {
        std::set<NodeId> nodes;  // All that have ever joined, up to a bound.
        bool left = false;       // All of them have said goodbye.

        void add(const NodeId& node);
        void note(const Event& event, const RendezvousCore& after);
    };

    Job(journal::JobKey key_in, RendezvousCore core_in, Attendance attendance, Duration shift);
    void drain_held();

    Duration shift_{};  // From the daemon's instants to the job's.
    std::map<NodeId, journal::Entry> held_;
    std::vector<journal::Entry> deferred_;
    Attendance attendance_;
    std::optional<Former> former_;
};

/// Brings a job to where it was when its last entry was written, a few entries at a time: all of
/// them may take seconds, in which the daemon has other duties.
class JobRestoration {
   public:
    explicit JobRestoration(journal::KeptJob kept) : reader_(std::move(kept)) {}

    /// Goes on by some entries; false once there are no more. Errors: those of JobReader.
    Result<bool> read();
    /// The job, once all has been read, as long after its last entry as `wall_ms` says. Requires
    /// that there was an entry.
    [[nodiscard]] Job finish(std::int64_t wall_ms, Instant now) &&;

    [[nodiscard]] const journal::JobKey& key() const noexcept { return reader_.key(); }
    [[nodiscard]] std::int64_t last_wall_ms() const noexcept { return reader_.last_wall_ms(); }

   private:
    journal::JobReader reader_;
    Job::Attendance attendance_;
};

}  // namespace regroup::rendezvous
