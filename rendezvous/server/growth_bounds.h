// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/server/allowance.h"
#include "rendezvous/server/daemon.h"
#include "rendezvous/server/job_journal.h"
#include "rendezvous/server/job_runner.h"

namespace regroup::rendezvous {

/// Bounds on the growth of the jobs, and of their journals, by peers.
class GrowthBounds {
   public:
    /// All references outlive it.
    GrowthBounds(const Clock& clock, const DaemonLimits& limits, const JobRunner& runner,
                 const JobJournal& journal)
        : clock_(clock), limits_(limits), runner_(runner), journal_(journal) {}

    /// False if the report of a node must count as a lost message: the node repeats its state. A
    /// report that would take too much loses its details first.
    [[nodiscard]] bool admit(Job& job, NodeReported& event) const;
    /// True if the job's journal may grow by `bytes`, and an entry, for what the node says.
    [[nodiscard]] bool may_keep(Job& job, const NodeId& node, std::size_t bytes) const;
    /// Why a join of `bytes` would take too much of the daemon, or of the job's journal; empty: it
    /// would not, and it has its part of the allowances. `job` may be null, for a new job.
    [[nodiscard]] std::string excess(Job* job, const Join& join, std::size_t bytes);
    /// Call after the core has decided about such a join.
    void settle(Job& job, const NodeId& node, std::size_t bytes);

   private:
    /// About how many bytes all nodes of all jobs take.
    [[nodiscard]] std::size_t nodes_bytes() const;
    [[nodiscard]] std::size_t attendance_bytes() const;

    const Clock& clock_;
    const DaemonLimits limits_;
    const JobRunner& runner_;
    const JobJournal& journal_;
    // The growth of all journals by new nodes: those of some of the largest jobs, and many others.
    Allowance newcomers_{{std::size_t{128} << 20U, std::size_t{128} << 10U}};
};

}  // namespace regroup::rendezvous
