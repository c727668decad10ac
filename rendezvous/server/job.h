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

    /// A job as it was when its last entry was written, `wall_ms - that entry's` later. Errors:
    /// invalid_argument, when the entries are not those of a job.
    [[nodiscard]] static Result<Job> restored(const journal::StoredJob& stored,
                                              std::int64_t wall_ms, Instant now);

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
    /// What is to be kept now: `entry` and what waited for it, in order.
    [[nodiscard]] std::vector<journal::Entry> with_held(journal::Entry entry);

    journal::JobKey key;
    RendezvousCore core;
    std::map<NodeId, std::shared_ptr<Session>> sessions;
    Instant idle_since = Instant::max();  ///< Closed, or without a node, since then.
    std::string last_log;

   private:
    struct Former {
        Verdict verdict;
        RoundId round = RoundId::none;
        std::set<NodeId> nodes;
        Instant until{};
    };

    Duration shift_{};  // From the daemon's instants to the job's.
    std::map<NodeId, journal::Entry> held_;
    std::set<NodeId> nodes_;  // All that have ever joined, up to a bound.
    std::optional<Former> former_;
    bool left_ = false;  // All nodes have said goodbye.
};

}  // namespace regroup::rendezvous
