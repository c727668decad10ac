// SPDX-License-Identifier: Apache-2.0
//
// The state of a RendezvousCore, and what several of its files ask about it. Internal.
#pragma once

#include <deque>
#include <iterator>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/failure_detector.h"
#include "rendezvous/core/incident_ledger.h"
#include "rendezvous/core/job_event.h"
#include "rendezvous/core/job_policy.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_failures.h"
#include "rendezvous/core/node_state.h"
#include "rendezvous/core/nodes.h"
#include "rendezvous/core/offer_index.h"
#include "rendezvous/core/prestarts.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/reached_steps.h"
#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/restart_budget.h"
#include "rendezvous/core/round.h"

namespace regroup::rendezvous::core {

/// When the next round may form.
struct Formation {
    /// The end of the last call; min: there is none; max: too few nodes are ready.
    Instant last_call_until = Instant::max();
    Instant back_off_until = Instant::max();  ///< No round forms before this; max: no back-off.
    Instant give_up_at = Instant::max();      ///< When the first node stops waiting for others.

    [[nodiscard]] bool is_backing_off() const noexcept { return back_off_until != Instant::max(); }
};

/// The output of the current step.
struct Outbox {
    std::vector<NodeSlot> concerned{};  ///< The nodes that this step concerns, some more than once.
    std::optional<NodeSlot> speaker{};  ///< The sender of this step's message: it gets an answer.
    Effects effects{};
    std::vector<JobEvent> events{};  ///< For people.

    void concern(const Node& node) { concerned.push_back(node.slot); }
    void send(const NodeId& node, FromDaemon message) {
        effects.push_back({node, std::move(message)});
    }
};

/// All data of the state machine. `phase` changes in `transit` only.
struct Job {
    Job(JobPolicy job_policy, std::int64_t began);

    JobPolicy policy;
    std::int64_t began_ms;
    FailureDetector detector;
    RankTable ranks{};
    RestartBudget budget;
    NodeFailures failures;
    IncidentLedger ledger{};
    ReachedSteps reached{};
    Phase phase = Phase::forming;
    Round round{};                        ///< The current round, or the last one.
    RoundId round_floor = RoundId::none;  ///< New rounds have higher numbers than this.
    Nodes nodes{};
    std::size_t nodes_bytes = 0;     ///< Of all nodes together.
    std::uint64_t nodes_joined = 0;  ///< Over the life of the job.
    Places places{};
    OfferIndex offers{};
    Prestarts prestarts{};
    Formation formation{};
    Instant overdue_at = Instant::max();  ///< When `lose_overdue` is next due.
    std::optional<Instant> first_began{};
    bool is_elastic = false;       ///< A worker of the job has been elastic.
    bool program_has_run = false;  ///< The workers of a whole round have been started.
    bool embedded_daemon = false;  ///< The daemon ran in one process with a node of the job.
    /// Waiting nodes are told of no refused join before this. Only the effects of refused joins may
    /// depend on it, since a journal has no refused joins.
    Instant refusals_untold_until = Instant::min();
    std::optional<StopRequested> stop{};
    /// Operators' requests for nodes that were lost.
    std::deque<std::pair<NodeId, LeaveWish>> kept_wishes{};
    std::optional<Verdict> verdict{};
    Outbox outbox{};
};

[[nodiscard]] inline bool in_round(const Job& job) noexcept {
    return job.phase != Phase::forming && job.phase != Phase::closed;
}
[[nodiscard]] inline bool trains(const Job& job) noexcept {
    return job.phase == Phase::training || job.phase == Phase::changing;
}
/// The node is in the round, or was in the last one, and the job goes on.
[[nodiscard]] inline bool is_of_round(const Job& job, const Node& node) noexcept {
    return job.phase != Phase::closed && job.round.id != RoundId::none &&
           node.member_of == job.round.id;
}
/// A round is in progress, and the node is in it.
[[nodiscard]] inline bool is_member(const Job& job, const Node& node) noexcept {
    return in_round(job) && is_of_round(job, node);
}
/// The last round is over, and the node was in it.
[[nodiscard]] inline bool was_member(const Job& job, const Node& node) noexcept {
    return job.phase == Phase::forming && is_of_round(job, node);
}
/// The facts that the round keeps of the node. Requires `is_of_round`.
[[nodiscard]] inline Seat& seat_of(Job& job, const Node& node) {
    return job.round.seats[node.group_rank];
}
[[nodiscard]] inline const Seat& seat_of(const Job& job, const Node& node) {
    return job.round.seats[node.group_rank];
}

/// The remaining members of the round, or of the last one, by id. A walk over all nodes.
[[nodiscard]] inline auto members_of(const Job& job) {
    return job.nodes |
           std::views::filter([&job](const auto& entry) { return is_of_round(job, entry.second); });
}

/// The nodes in one place, by id: a walk over all nodes, until all of the place have been seen.
class NodesIn {
   public:
    class Iterator {
       public:
        Iterator(const Job& job, Place place)
            : at_(job.nodes.begin()), place_(place), left_(job.places.count(place)) {
            seek();
        }
        [[nodiscard]] const Nodes::Entry& operator*() const { return *at_; }
        Iterator& operator++() {
            --left_;
            ++at_;
            seek();
            return *this;
        }
        [[nodiscard]] bool operator==(std::default_sentinel_t /*end*/) const { return left_ == 0; }

       private:
        void seek() {
            while (left_ > 0 && at_->second.place != place_) {
                ++at_;
            }
        }
        Nodes::Map::const_iterator at_;
        Place place_;
        std::size_t left_;
    };

    NodesIn(const Job& job, Place place) : job_(job), place_(place) {}
    [[nodiscard]] Iterator begin() const { return {job_, place_}; }
    [[nodiscard]] std::default_sentinel_t end() const { return {}; }

   private:
    const Job& job_;
    Place place_;
};

/// For people.
[[nodiscard]] std::string name_of(const Job& job, const NodeId& id);
/// The member of the round, or of the last one, with this rank, if it is still there.
[[nodiscard]] std::optional<NodeId> node_with(const Job& job, std::uint32_t rank);
[[nodiscard]] std::optional<std::string> name_with(const Job& job, std::uint32_t rank);
/// In the current change the node leaves at the step boundary.
[[nodiscard]] bool leaves_with_change(const Job& job, const NodeId& id);
/// The node leaves with the change, all are at the boundary, and the others continue without
/// waiting for it.
[[nodiscard]] bool leaves_unawaited(const Job& job, const NodeId& id);
/// The node leaves with the change, all are at the boundary, and its workers may be saving their
/// state, which must not be interrupted.
[[nodiscard]] bool may_be_saving(const Job& job, const NodeId& id);
[[nodiscard]] Cause why_leaving(const Job& job, const Node& node);
/// When the node is lost if its workers are not gone by then; Instant::max(): no limit.
[[nodiscard]] Instant out_by(const Job& job, const NodeId& id, const Node& node);
/// The members that have workers, for an inquiry.
[[nodiscard]] HangInquiry::Working working(const Job& job);

/// Puts the node into the place in which it is now, by its report and the phase.
void place(Job& job, Instant now, const NodeId& id, Node& node);
void place_all(Job& job, Instant now);
/// Places the leaving nodes again after a change of whether a round can form without them.
void place_leavers(Job& job, Instant now);
/// Nodes of these names are no longer quarantined.
void readmit(Job& job, Instant now, const std::vector<std::string>& names,
             const JobEvent::Detail& detail = {});
/// Reports to members and people that `incidents` are over.
void report_recovered(Job& job, Instant now, const std::vector<Incident>& incidents);
void concern_members(Job& job);
/// Records an event for people. The caller adds the details before the next event.
JobEvent& note(Job& job, Instant now, JobEvent::Kind kind);
JobEvent& note(Job& job, Instant now, JobEvent::Kind kind, const Node& node);

}  // namespace regroup::rendezvous::core
