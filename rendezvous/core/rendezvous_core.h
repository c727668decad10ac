// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/failure_detector.h"
#include "rendezvous/core/incident_ledger.h"
#include "rendezvous/core/job_status.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_failures.h"
#include "rendezvous/core/offer_index.h"
#include "rendezvous/core/places.h"
#include "rendezvous/core/prestarts.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/reached_steps.h"
#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/restart_budget.h"
#include "rendezvous/core/round.h"

namespace regroup::rendezvous {

/// The membership of one job, as a pure state machine.
///
/// It owns no socket, timer, thread or clock. Same policy and same (instant, event) sequence, same
/// effects, on any machine; the daemon and the simulator drive this very class. Memory is bounded
/// by the number of nodes, which is bounded by `kNodesLimit`. Not thread-safe: one owner.
///
/// Each step does three things, in this order:
///  1. observe: the event is written down, and nothing is decided;
///  2. transit: as long as a row of `kTransitions` (transitions.cc) matches, it is applied. Nowhere
///     else does the phase change, does a round form or end, or is anybody charged;
///  3. reconcile: each node that this may concern is sent what `desired` (desired.cc) says that it
///     should have acted on, unless its report shows that it has. Nowhere else is a node told what
///     to do. A message that was lost on its way is still different at the next heartbeat, and sent
///     again.
///
/// docs/design.md has both tables. Besides, members are told facts for people: of recoveries.
///
/// The cost of a step is O(log nodes) for each node that the event concerns; a heartbeat that says
/// nothing new concerns one node.
class RendezvousCore {
   public:
    /// More nodes than this in one job are refused as overloaded.
    static constexpr std::size_t kNodesLimit = 16384;
    /// A node that offers more workers than this is refused.
    static constexpr std::uint32_t kWorkersLimit = 4096;

    /// Requires `validate(policy)`.
    explicit RendezvousCore(JobPolicy policy);

    /// Applies `event`, seen at `now`; `now` never decreases from one call to the next. Any word
    /// from a node is a sign of life.
    [[nodiscard]] Effects step(Instant now, const Event& event);

    /// Applies the mere passing of time. Due at `next_deadline()`; early is harmless.
    [[nodiscard]] Effects advance(Instant now);

    /// When `advance` is next due; Instant::max() when nothing is pending. Earlier than that,
    /// `advance` changes nothing at all, so that a journal need not know of it.
    [[nodiscard]] Instant next_deadline() const;

    /// True if `event` says nothing new: a heartbeat that would be answered by Alive or Waiting and
    /// changes only when its node was last heard, and the step. Of a row of these for one node, all
    /// but the last may be left out of a journal, and that one may be put just before the next
    /// other event.
    [[nodiscard]] bool is_routine(const Event& event) const;

    [[nodiscard]] Phase phase() const noexcept { return phase_; }
    /// The last one that was formed.
    [[nodiscard]] RoundId round() const noexcept { return round_.id; }
    [[nodiscard]] const JobPolicy& policy() const noexcept { return policy_; }
    /// How long nodes have to come back after `Restarted`, at most.
    [[nodiscard]] Duration absence_limit() const noexcept { return detector_.absence_limit(); }
    /// The job's activity, or the thing that it waits for.
    [[nodiscard]] Situation situation(Instant now) const;
    /// Everything that people may want to know of the job. O(nodes).
    [[nodiscard]] JobStatus status(Instant now) const;
    /// The next round is held back for a while, because the last ones ended too soon.
    [[nodiscard]] bool is_backing_off() const noexcept { return back_off_until_ != Instant::max(); }
    /// The node is not let into a round for a while; `status` says why.
    [[nodiscard]] bool is_quarantined(const NodeId& node) const;
    /// How many nodes of this name (or id) are in the job: those that a drain of it is for.
    [[nodiscard]] std::size_t nodes_called(const std::string& name) const;
    /// Nodes that the job knows, members and waiting ones.
    [[nodiscard]] std::size_t nodes_count() const noexcept { return nodes_.size(); }
    [[nodiscard]] const std::optional<Verdict>& verdict() const noexcept { return verdict_; }

   private:
    struct Node {
        Offer offer{};
        NodeReport report{};
        std::optional<LeaveWish> wish{};  ///< To leave: its own, or an operator's.
        Instant out_since{};              ///< When it was first heard of as stopped in its round.
        /// Since when it is in no round and has workers of an older one; max: it has none.
        Instant stray_since = Instant::max();
        Instant in_user_code_until = Instant::min();  ///< Its workers may suspend as late as that.
        Instant saw_end_at = Instant::max();  ///< It saw its round end when nobody listened.
        RoundId member_of = RoundId::none;    ///< The last round that it was a member of.
        Place place = Place::away;            ///< As `places_` has it.
    };
    using Nodes = std::map<NodeId, Node>;

    // ---- Observe (observe.cc): what was seen is written down.

    void observe(Instant now, const NodeJoined& event);
    void observe(Instant now, const NodeReported& event);
    void observe(Instant now, const NodeDisconnected& event);
    void observe(Instant now, const NodeLeft& event);
    void observe(Instant now, const StopRequested& event);
    void observe(Instant now, const DrainRequested& event);
    void observe(Instant now, const NodeResumed& event);
    void observe(Instant now, const Restarted& event);
    void observe(Instant now, const JobFollows& event);
    /// Any word from a node: it lives, and `report` is the truth about it.
    void hear(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    void learn(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    /// Takes from a member's report what it says of the round.
    void observe_member(Instant now, const NodeId& id, const Node& node, const NodeReport& before);
    void observe_links(Instant now, const NodeId& id, const NodeReport& report,
                       const NodeReport& before);
    void observe_boundary(Instant now, const NodeId& id, const Node& node);
    void observe_training(Instant now, const NodeId& id, const NodeReport& before,
                          const NodeReport& report);
    [[nodiscard]] std::optional<Refused> refusal(Instant now, const NodeJoined& event) const;

    // The ends of nodes (losses.cc).

    /// The one place where a node is taken out, however its end was learned; `sign` is the first
    /// sign of it.
    void lose(Instant now, const NodeId& id, const Departure& how, Instant sign);
    void observe_loss(Instant now, const NodeId& id, const Node& node, const Departure& how,
                      Instant sign);
    void observe_silence(Instant now);
    /// Loses nodes that should have been out by now.
    void lose_overdue(Instant now);

    // Hangs (hangs.cc): stacks are saved, then the rank that the others wait for is named.

    void observe_hang(Instant now, const NodeId& id, const Node& node);
    void begin_inquiry(Instant now, const NodeId& id, const Hang& hang);
    void conclude_inquiry(Instant now);
    void overdue_inquiry(Instant now);
    void add_hang(const Cause::Hung& cause, std::uint32_t rank, const NodeId& id, bool proven);

    // ---- Transit (transitions.cc): one table; a guard only looks, and `clock` is the instant by
    // which time may decide: the present one in `advance`, none in `step`.

    struct Transition {
        Phase from;
        bool (RendezvousCore::*when)(Instant clock) const;
        void (RendezvousCore::*apply)(Instant now);
    };
    static const Transition kTransitions[];
    void transit(Instant now, Instant clock);
    [[nodiscard]] bool must_stop(Instant clock) const;

    // A round forms (forming.cc).

    [[nodiscard]] bool too_few_left(Instant clock) const;
    [[nodiscard]] bool nobody_came(Instant clock) const;
    [[nodiscard]] bool needs_quarantined(Instant clock) const;
    [[nodiscard]] bool can_form(Instant clock) const;
    void release_quarantined(Instant now);
    void form(Instant now);
    void begin_forming(Instant now);
    /// While forming: whether there is a last call, and until when.
    void update_last_call(Instant now);
    /// When the first node gives up that waits for others.
    [[nodiscard]] Instant first_gives_up_at() const;
    [[nodiscard]] static Instant gives_up_at(const Node& node);
    [[nodiscard]] std::uint64_t furthest_ready() const;
    [[nodiscard]] Succession succession(const std::vector<Member>& members) const;

    // A round changes at a step boundary (changing.cc).

    [[nodiscard]] bool must_change(Instant clock) const;
    [[nodiscard]] bool must_change_more(Instant clock) const;
    [[nodiscard]] bool is_at_boundary(Instant clock) const;
    [[nodiscard]] bool lost_with_daemon(Instant clock) const;
    void begin_change(Instant now);
    void change_more(Instant now);
    void end_at_boundary(Instant now);
    /// The change that the nodes' wishes ask for.
    [[nodiscard]] std::optional<Change> wanted_departures() const;
    /// When the round is changed to let nodes in that wait; Instant::max() if it is not.
    [[nodiscard]] Instant grow_at() const;
    [[nodiscard]] bool may_grow() const;
    void begin_planned_incident(Instant now);

    // A round ends (ending.cc).

    [[nodiscard]] bool all_finished(Instant clock) const;
    [[nodiscard]] bool must_end(Instant clock) const;
    [[nodiscard]] bool is_out(Instant clock) const;
    void begin_ending(Instant now);
    void end_round(Instant now);
    /// The evidence that ends the round, if any does: at `clock` a broken link is overdue.
    [[nodiscard]] std::optional<std::size_t> decisive_evidence(Instant clock) const;
    [[nodiscard]] bool is_live_break(const Evidence& evidence) const;
    /// When a link that only one end says to be broken ends the round; Instant::max() if none is.
    [[nodiscard]] Instant link_deadline() const;

    // The cost of an end, and the job's end (charges.cc).

    /// Charges the end of the round; the verdict, if that was too much.
    [[nodiscard]] std::optional<Verdict> charge(Instant now);
    [[nodiscard]] std::optional<Verdict> charge_failure(Instant now);
    [[nodiscard]] Reaction reaction_to(const WorkerFailure& failure) const;
    void count_failure(Instant now, const std::string& name);
    [[nodiscard]] Verdict failed(Ending ending) const;
    void close_stopped(Instant now);
    void close_drained(Instant now);
    void close_too_few_left(Instant now);
    void close_nobody_came(Instant now);
    void close_finished(Instant now);
    void close(Instant now, Verdict verdict);

    // ---- Where nodes stand: one function, and one that applies it.

    [[nodiscard]] Place place_of(const NodeId& id, const Node& node) const;
    void place(Instant now, const NodeId& id, Node& node);
    void place_all(Instant now);
    void place_named(Instant now, const std::vector<std::string>& names);
    /// Whether a round can form without them has changed.
    void place_leavers(Instant now);
    /// A round is under way, and the node is in it.
    [[nodiscard]] bool is_member(const Node& node) const noexcept {
        return in_round() && node.member_of == round_.id;
    }
    /// The last round is over, and the node was in it.
    [[nodiscard]] bool was_member(const Node& node) const noexcept {
        return phase_ == Phase::forming && round_.id != RoundId::none &&
               node.member_of == round_.id;
    }
    [[nodiscard]] bool in_round() const noexcept {
        return phase_ == Phase::training || phase_ == Phase::changing || phase_ == Phase::ending;
    }
    /// The change that is under way lets the node go at the step boundary.
    [[nodiscard]] bool leaves_with_change(const NodeId& id) const;
    /// It does, all are at the boundary, and the others go on without waiting for it.
    [[nodiscard]] bool leaves_unawaited(const NodeId& id) const;
    /// It does, all are at the boundary, and its workers save their state, in which they must not
    /// be disturbed.
    [[nodiscard]] bool may_be_saving(const NodeId& id) const;
    /// Wants to leave, but takes part in the next round before it does.
    [[nodiscard]] bool leaves_later(const NodeId& id, const Node& node) const;
    /// Members, or others, that are lost if they are not out by then.
    [[nodiscard]] Instant out_by(const NodeId& id, const Node& node) const;

    // ---- Reconcile (desired.cc).

    /// The order that the node should have acted on. Pure.
    [[nodiscard]] FromDaemon desired(Instant now, const NodeId& id, const Node& node) const;
    [[nodiscard]] FromDaemon desired_of_member(const NodeId& id, const Node& node) const;
    [[nodiscard]] FromDaemon desired_of_leaver(const Node& node) const;
    [[nodiscard]] Waiting waiting(Instant now, const NodeId& id, const Node& node) const;
    [[nodiscard]] bool is_stale(const Node& node) const;
    [[nodiscard]] Cause why_leaving(const Node& node) const;
    /// Its report does not show that it has acted on the word already.
    [[nodiscard]] static bool needs_telling(const FromDaemon& word, const Node& node);
    void concern(const NodeId& id) { concerned_.insert(id); }
    void concern_members();
    void start_prestarts(Instant now);
    void reconcile(Instant now);
    void tell_recovered(const std::vector<Incident>& incidents);

    // Names (status.cc).

    [[nodiscard]] std::string name_of(const NodeId& id) const;
    /// The member with this rank, if it is still there.
    [[nodiscard]] std::optional<NodeId> node_with(std::uint32_t rank) const;
    [[nodiscard]] JobStatus::Node status_of(Instant now, const NodeId& id, const Node& node) const;
    void add_quarantined(Instant now, Situation& situation) const;

    JobPolicy policy_;
    FailureDetector detector_;
    RankTable ranks_;
    RestartBudget budget_;
    NodeFailures failures_;
    IncidentLedger ledger_;
    ReachedSteps reached_;
    Phase phase_ = Phase::forming;
    Round round_;                          ///< The present one, or the last one.
    RoundId round_floor_ = RoundId::none;  ///< No round may have this number or a lower one.
    Nodes nodes_;                          ///< Ordered: the order is part of the behaviour.
    Places places_;
    OfferIndex offers_;
    Prestarts prestarts_;
    /// While forming: the last call ends then; min: there is none; max: too few are ready.
    Instant last_call_until_ = Instant::max();
    Instant back_off_until_ = Instant::max();  ///< No round forms before; max: no back-off.
    Instant give_up_at_ = Instant::max();      ///< Some node waits for others until then.
    Instant overdue_at_ = Instant::max();      ///< Some node is to be out by then.
    std::optional<Instant> first_began_;
    bool is_elastic_ = false;       ///< Some worker of the job has kept its process.
    bool embedded_daemon_ = false;  ///< The job's daemon was of one process with a node.
    std::optional<StopRequested> stop_;
    std::deque<std::pair<NodeId, LeaveWish>>
        kept_wishes_;  ///< Operators', of nodes that were lost.
    std::optional<Verdict> verdict_;
    std::set<NodeId> concerned_;     ///< By this step.
    std::optional<NodeId> speaker_;  ///< In this step: it is answered, whatever there is to say.
    Effects effects_;
};

}  // namespace regroup::rendezvous
