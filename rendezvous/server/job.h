// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// A job of the daemon: its core, and the connections of its nodes.
struct Job {
    explicit Job(JobPolicy policy) : core(std::move(policy)) {}

    /// Begins a new job of the same id after one that was closed by success. Its rounds have higher
    /// numbers, so that nobody takes one of the old job for one of the new.
    [[nodiscard]] static Job following(const Job& old, JobPolicy policy, Instant now,
                                       Duration retention);

    /// Notes that the node has joined.
    void remember(const NodeId& node);

    /// Whether this job has ended well and `join` is from a node that had no part in it, which
    /// means a new job and not the end of this one.
    [[nodiscard]] bool is_done_without(const Join& join) const;

    /// The verdict of the job before this one, for a node that had a part in that one and in no
    /// other.
    [[nodiscard]] const Verdict* former_verdict(const Join& join, Instant now) const;

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

    std::set<NodeId> nodes_;  ///< All that have ever joined, up to a bound.
    std::optional<Former> former_;
};

}  // namespace regroup::rendezvous
