// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/job_event.h"
#include "rendezvous/core/job_policy.h"
#include "rendezvous/core/job_status.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/rendezvous_events.h"

namespace regroup::rendezvous {

namespace core {
struct Job;
}

/// The membership of one job, as a pure state machine.
///
/// It owns no socket, timer, thread or clock. The same policy and the same (instant, event)
/// sequence give the same effects on any machine; the daemon and the simulator use this same class.
/// Memory grows with the number of nodes, which the caller bounds. Not thread-safe: one owner.
///
/// The state is `core::Job` (job.h), a struct without functions. Each step does three things with
/// it, in this order:
///  1. observe (observe.h): the event is recorded, and nothing is decided;
///  2. transit (transitions.h): as long as a row of the table in transitions.cc matches, it is
///     applied. Only here does the phase change, a round form or end, or a budget get charged. A
///     guard gets the state as const;
///  3. reconcile (orders.h): each node that the event may concern is sent the order that `desired`
///     returns for it, unless its report shows that it has obeyed. Only here does a node get
///     orders. If a message is lost, the difference remains, and the next heartbeat of the node is
///     answered with the order again.
///
/// docs/design.md has both tables. Besides orders, members get reports of recoveries, for people.
///
/// The cost of a step is O(log nodes) for each node that the event concerns; a heartbeat without
/// news concerns one node.
class RendezvousCore {
   public:
    /// A node that offers more workers than this is refused.
    static constexpr std::uint32_t kWorkersLimit = 4096;
    /// A node that joins with a later round is refused. Messages can carry rounds up to twice this
    /// number, so the rounds after it can be sent.
    static constexpr RoundId kRoundClaimMax = RoundId{std::uint64_t{1} << 52U};

    /// Requires `validate(policy)`. `began_ms`: when the job began at this daemon, wall-clock time
    /// since 1970. It tells the job apart from the same job at a daemon that lost its memory.
    explicit RendezvousCore(JobPolicy policy, std::int64_t began_ms = 0);
    RendezvousCore(const RendezvousCore& other);
    RendezvousCore& operator=(const RendezvousCore& other);
    /// Of a core that was moved from, nothing but assignment and destruction is defined.
    RendezvousCore(RendezvousCore&&) noexcept;
    RendezvousCore& operator=(RendezvousCore&&) noexcept;
    ~RendezvousCore();

    /// Applies `event`, seen at `now`; `now` never decreases from one call to the next. Any message
    /// from a node is a sign of life.
    [[nodiscard]] Effects step(Instant now, const Event& event);
    /// Applies the passing of time. Due at `next_deadline()`; an earlier call does no harm.
    [[nodiscard]] Effects advance(Instant now);
    /// The events of the last `step` or `advance`, in order.
    [[nodiscard]] const std::vector<JobEvent>& job_events() const noexcept;
    /// When `advance` is next due; Instant::max() when nothing is pending. Before that, `advance`
    /// changes nothing, so that a journal need not record the call.
    [[nodiscard]] Instant next_deadline() const;

    /// True if `event` brings no news: a heartbeat that would be answered by Alive or Waiting, and
    /// that changes only the step and the time of the last sign of life. Of consecutive routine
    /// events of one node a journal may leave out all but the last, and may record that one just
    /// before the next other event.
    [[nodiscard]] bool is_routine(const Event& event) const;
    /// False if the job knows a node of this id whose agent has another secret. Such a join must
    /// not take the node's place; `step` ignores it.
    [[nodiscard]] bool is_proven(const NodeId& node, const Offer& offer) const;
    [[nodiscard]] bool knows(const NodeId& node) const;
    /// True if the node is a member of the round in progress.
    [[nodiscard]] bool has_member(const NodeId& node) const;
    /// The number of nodes that the job knows, members and waiting ones.
    [[nodiscard]] std::size_t nodes_count() const noexcept;
    /// About how many bytes they take: see bytes_of.
    [[nodiscard]] std::size_t nodes_bytes() const noexcept;
    /// The number of nodes with this name or id: those that a drain of it concerns.
    [[nodiscard]] std::size_t nodes_called(const std::string& name) const;
    /// For people.
    [[nodiscard]] std::string name_of(const NodeId& id) const;
    /// The member of the round, or of the last one, with this rank, if it is still there.
    [[nodiscard]] std::optional<NodeId> node_with(std::uint32_t rank) const;
    /// The nodes of this name may not enter a round for a while; `status` says why.
    [[nodiscard]] bool is_quarantined(const std::string& name) const;

    [[nodiscard]] const JobPolicy& policy() const noexcept;
    [[nodiscard]] Phase phase() const noexcept;
    /// The last round that was formed.
    [[nodiscard]] RoundId round() const noexcept;
    [[nodiscard]] const std::optional<Verdict>& verdict() const noexcept;
    /// The next round is delayed because the last ones ended too soon.
    [[nodiscard]] bool is_backing_off() const noexcept;
    /// The longest time that nodes have to come back after `Restarted`.
    [[nodiscard]] Duration absence_limit() const noexcept;
    /// The activity of the job, or the reason why the job waits.
    [[nodiscard]] Situation situation(Instant now) const;
    /// The state of the job for people. O(nodes).
    [[nodiscard]] JobStatus status(Instant now) const;

   private:
    std::unique_ptr<core::Job> job_;
};

}  // namespace regroup::rendezvous
