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
#include "rendezvous/core/job_event.h"
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
/// It owns no socket, timer, thread or clock. The same policy and the same (instant, event)
/// sequence give the same effects on any machine; the daemon and the simulator use this same class.
/// Memory is bounded by the number of nodes, which is bounded by `kNodesLimit`. Not thread-safe:
/// one owner.
///
/// Each step does three things, in this order:
///  1. observe: the event is recorded, and nothing is decided;
///  2. transit: as long as a row of `kTransitions` (transitions.cc) matches, it is applied. Only
///     here does the phase change, a round form or end, or a budget get charged;
///  3. reconcile: each node that the event may concern is sent the order that `desired`
///     (desired.cc) returns for it, unless its report shows that it has obeyed. Only here does a
///     node get orders. If a message is lost, the difference remains, and the next heartbeat of the
///     node is answered with the order again.
///
/// docs/design.md has both tables. Besides orders, members get reports of recoveries, for people.
///
/// The cost of a step is O(log nodes) for each node that the event concerns; a heartbeat without
/// news concerns one node.
class RendezvousCore {
   public:
    /// More nodes than this in one job are refused as overloaded.
    static constexpr std::size_t kNodesLimit = 16384;
    /// A node that offers more workers than this is refused.
    static constexpr std::uint32_t kWorkersLimit = 4096;
    /// A node that joins with a later round is refused. Messages can carry rounds up to twice this
    /// number, so the rounds after it can be sent.
    static constexpr RoundId kRoundClaimMax = RoundId{std::uint64_t{1} << 52U};

    /// Requires `validate(policy)`.
    explicit RendezvousCore(JobPolicy policy);

    /// Applies `event`, seen at `now`; `now` never decreases from one call to the next. Any message
    /// from a node is a sign of life.
    [[nodiscard]] Effects step(Instant now, const Event& event);

    /// Applies the passing of time. Due at `next_deadline()`; an earlier call does no harm.
    [[nodiscard]] Effects advance(Instant now);

    /// The events of the last `step` or `advance`, in order.
    [[nodiscard]] const std::vector<JobEvent>& job_events() const noexcept { return job_events_; }

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
    [[nodiscard]] bool knows(const NodeId& node) const { return nodes_.contains(node); }
    /// True if the node is a member of the round in progress.
    [[nodiscard]] bool has_member(const NodeId& node) const;
    /// About how many bytes the nodes take: see bytes_of.
    [[nodiscard]] std::size_t nodes_bytes() const noexcept { return nodes_bytes_; }

    [[nodiscard]] Phase phase() const noexcept { return phase_; }
    /// The last round that was formed.
    [[nodiscard]] RoundId round() const noexcept { return round_.id; }
    [[nodiscard]] const JobPolicy& policy() const noexcept { return policy_; }
    /// The longest time that nodes have to come back after `Restarted`.
    [[nodiscard]] Duration absence_limit() const noexcept { return detector_.absence_limit(); }
    /// The activity of the job, or the reason why the job waits.
    [[nodiscard]] Situation situation(Instant now) const;
    /// The state of the job for people. O(nodes).
    [[nodiscard]] JobStatus status(Instant now) const;
    /// The next round is delayed because the last ones ended too soon.
    [[nodiscard]] bool is_backing_off() const noexcept { return back_off_until_ != Instant::max(); }
    /// The node may not enter a round for a while; `status` says why.
    [[nodiscard]] bool is_quarantined(const NodeId& node) const;
    /// The same for all nodes of a name, those too that are not connected.
    [[nodiscard]] bool is_quarantined_name(const std::string& name) const {
        return failures_.is_quarantined(name);
    }
    /// The number of nodes with this name or id: those that a drain of it concerns.
    [[nodiscard]] std::size_t nodes_called(const std::string& name) const;
    /// For people.
    [[nodiscard]] std::string name_of(const NodeId& id) const;
    /// The member of the round, or of the last one, with this rank, if it is still there.
    [[nodiscard]] std::optional<NodeId> node_with(std::uint32_t rank) const;
    /// The number of nodes that the job knows, members and waiting ones.
    [[nodiscard]] std::size_t nodes_count() const noexcept { return nodes_.size(); }
    [[nodiscard]] const std::optional<Verdict>& verdict() const noexcept { return verdict_; }

   private:
    struct Node {
        Offer offer{};
        NodeReport report{};
        std::optional<LeaveWish> wish{};  ///< To leave: its own, or an operator's.
        Instant out_since{};              ///< When it first reported `stopped` for its round.
        /// Since when it is in no round but has workers of an older one; max: it has none.
        Instant stray_since = Instant::max();
        Instant in_user_code_until = Instant::min();  ///< Its workers suspend by then.
        Instant saw_end_at = Instant::max();  ///< When its round ended while the daemon was away.
        RoundId member_of = RoundId::none;    ///< The last round that it was a member of.
        Place place = Place::away;            ///< The same as in `places_`.
        std::size_t bytes = 0;                ///< Its part of `nodes_bytes_`.
        std::uint64_t joined = 0;             ///< How many nodes had joined by then, this included.
    };
    using Nodes = std::map<NodeId, Node>;

    // ---- Observe (observe.cc): the event is recorded.

    void observe(Instant now, const NodeJoined& event);
    void observe(Instant now, const NodeReported& event);
    void observe(Instant now, const NodeDisconnected& event);
    void observe(Instant now, const NodeLeft& event);
    void observe(Instant now, const StopRequested& event);
    void observe(Instant now, const DrainRequested& event);
    void observe(Instant now, const ReleaseRequested& event);
    void observe(Instant now, const NodeResumed& event);
    void observe(Instant now, const Restarted& event);
    void observe(Instant now, const JobFollows& event);
    /// Any message from a node: the node is alive, and `report` is its state.
    void hear(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    void weigh(const NodeId& id, Node& node);
    void learn(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    /// Records what a member's report says about the round.
    void observe_member(Instant now, const NodeId& id, const Node& node, const NodeReport& before);
    void observe_links(Instant now, const NodeId& id, const NodeReport& report,
                       const NodeReport& before);
    void observe_boundary(Instant now, const NodeId& id, const Node& node);
    void observe_training(Instant now, const NodeId& id, const NodeReport& before,
                          const NodeReport& report);
    /// Records which ranks of the member have ended with success (finishing.cc).
    void observe_finished(Instant now, const NodeId& id, const Node& node);
    [[nodiscard]] std::optional<Refused> refusal(Instant now, const NodeJoined& event) const;
    /// The node because of which a newcomer with this offer is another job; null: there is none.
    [[nodiscard]] const Node* only_node_against(Instant now, const Offer& newcomer) const;
    /// True if no node of the last round ran the command of this offer, as far as is known, and the
    /// job does not ask for standbys.
    [[nodiscard]] bool is_there(Instant now, const NodeId& id, const Node& node) const;
    /// In a job of the usual name: a node of the role, if none runs the newcomer's command.
    [[nodiscard]] const Node* node_of_other_command(Instant now, const Offer& newcomer) const;
    [[nodiscard]] bool runs_other_command(const Offer& offer) const;
    /// Tells the waiting nodes about a refused join, unless they were told of another one just now.
    void tell_refused(Instant now, const Refusal& refusal);

    // Departures of nodes (losses.cc).

    /// The only function that removes a node. `sign`: the time of the first sign.
    void lose(Instant now, const NodeId& id, const Departure& how, Instant sign);
    void observe_loss(Instant now, const NodeId& id, const Node& node, const Departure& how,
                      Instant sign);
    void observe_silence(Instant now);
    /// Removes nodes that have not confirmed in time that their workers are gone.
    void lose_overdue(Instant now);

    // Hangs (hangs.cc): agents save the stacks, then the daemon names the culprit.

    void observe_hang(Instant now, const NodeId& id, const Node& node);
    void begin_inquiry(Instant now, const NodeId& id, const Hang& hang);
    void conclude_inquiry(Instant now);
    void overdue_inquiry(Instant now);
    void add_hang(const Cause::Hung& cause, std::uint32_t rank, const NodeId& id, bool proven);
    /// The round hangs because this rank, which others wait for, has finished.
    void add_hang_on_finished(const HangCulprit& culprit);
    /// The first rank that has finished, if any has, as the reason of a hang.
    [[nodiscard]] std::optional<HangCulprit> finished_culprit() const;

    // ---- Transit (transitions.cc): one table. A guard changes nothing. `clock` is the time that a
    // guard may compare with deadlines: `now` in `advance`, Instant::min() in `step`.

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
    /// While forming: updates `last_call_until_`.
    void update_last_call(Instant now);
    /// When the first of the nodes that wait for others gives up.
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
    /// The change that the requests to leave ask for.
    [[nodiscard]] std::optional<Change> wanted_departures() const;
    /// When the round changes to admit waiting nodes; Instant::max(): it does not.
    [[nodiscard]] Instant grow_at() const;
    [[nodiscard]] bool may_grow() const;
    void begin_planned_incident(Instant now);

    // Some ranks have finished, and others go on (finishing.cc).

    /// Unknown, unless the round trains and that is so.
    [[nodiscard]] PartialFinish partial_finish(Instant now) const;
    /// When people are told so; Instant::max(): they have been, or there is nothing to tell.
    [[nodiscard]] Instant tell_finish_at() const;
    void tell_finish(Instant now);
    /// When the job is closed for it; Instant::max(): never.
    [[nodiscard]] Instant finish_deadline() const;
    [[nodiscard]] bool is_unfinished(Instant clock) const;
    void close_unfinished(Instant now);

    // A round ends (ending.cc).

    [[nodiscard]] bool all_finished(Instant clock) const;
    [[nodiscard]] bool must_end(Instant clock) const;
    [[nodiscard]] bool is_out(Instant clock) const;
    void begin_ending(Instant now);
    void end_round(Instant now);
    /// The evidence that ends the round, if any. A broken link ends it at `link_deadline`.
    [[nodiscard]] std::optional<std::size_t> decisive_evidence(Instant clock) const;
    /// When a broken link that only one end reports ends the round; Instant::max(): not yet known.
    [[nodiscard]] Instant link_deadline() const;

    // Charges for the end of a round, and the end of the job (charges.cc).

    /// Charges the end of the round. Returns the verdict if a budget is exhausted.
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

    // ---- The places of nodes: `place_of` computes a place, `place` applies it.

    [[nodiscard]] Place place_of(const NodeId& id, const Node& node) const;
    void place(Instant now, const NodeId& id, Node& node);
    void place_all(Instant now);
    void place_named(Instant now, const std::vector<std::string>& names);
    /// Places the leaving nodes again after a change of whether a round can form without them.
    void place_leavers(Instant now);
    /// A round is in progress, and the node is in it.
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
    /// In the current change the node leaves at the step boundary.
    [[nodiscard]] bool leaves_with_change(const NodeId& id) const;
    /// The node leaves with the change, all are at the boundary, and the others continue without
    /// waiting for it.
    [[nodiscard]] bool leaves_unawaited(const NodeId& id) const;
    /// The node leaves with the change, all are at the boundary, and its workers may be saving
    /// their state, which must not be interrupted.
    [[nodiscard]] bool may_be_saving(const NodeId& id) const;
    /// The node wants to leave, but takes part in the next round first.
    [[nodiscard]] bool leaves_later(const NodeId& id, const Node& node) const;
    /// When the node is lost if its workers are not gone by then; Instant::max(): no limit.
    [[nodiscard]] Instant out_by(const NodeId& id, const Node& node) const;

    // ---- Reconcile (desired.cc).

    /// The order that the node should have acted on. Pure.
    [[nodiscard]] FromDaemon desired(Instant now, const NodeId& id, const Node& node) const;
    [[nodiscard]] FromDaemon desired_of_member(Instant now, const NodeId& id,
                                               const Node& node) const;
    [[nodiscard]] FromDaemon desired_of_leaver(const Node& node) const;
    [[nodiscard]] Waiting waiting(Instant now, const NodeId& id, const Node& node) const;
    [[nodiscard]] bool is_stale(const Node& node) const;
    [[nodiscard]] Cause why_leaving(const Node& node) const;
    /// True unless the report of the node shows that it has acted on `word` already.
    [[nodiscard]] static bool needs_telling(const FromDaemon& word, const Node& node);
    void concern(const NodeId& id) { concerned_.insert(id); }
    void concern_members();
    void start_prestarts(Instant now);
    void reconcile(Instant now);

    // Events for people (job_events.cc).

    JobEvent& note(Instant now, JobEvent::Kind kind);
    JobEvent& note(Instant now, JobEvent::Kind kind, const NodeId& id, const Node& node);
    void note_assigned(Instant now);
    void note_quarantined(Instant now, const std::string& name);
    void note_released(Instant now, const std::vector<std::string>& names);
    /// The round begins to train, which ends `incidents`.
    void begin_training(Instant now, const std::vector<Incident>& incidents);
    void tell_recovered(Instant now, const std::vector<Incident>& incidents);

    // Names (status.cc).

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
    Round round_;                          ///< The current round, or the last one.
    RoundId round_floor_ = RoundId::none;  ///< New rounds have higher numbers than this.
    Nodes nodes_;                          ///< Ordered: the order is part of the behaviour.
    std::size_t nodes_bytes_ = 0;          ///< Of all nodes together.
    std::uint64_t nodes_joined_ = 0;       ///< Over the life of the job.
    Places places_;
    OfferIndex offers_;
    Prestarts prestarts_;
    /// While forming: the end of the last call; min: there is none; max: too few nodes are ready.
    Instant last_call_until_ = Instant::max();
    Instant back_off_until_ = Instant::max();  ///< No round forms before this; max: no back-off.
    Instant give_up_at_ = Instant::max();      ///< When the first node stops waiting for others.
    Instant overdue_at_ = Instant::max();      ///< When `lose_overdue` is next due.
    std::optional<Instant> first_began_;
    bool is_elastic_ = false;       ///< A worker of the job has been elastic.
    bool program_has_run_ = false;  ///< The workers of a whole round have been started.
    bool embedded_daemon_ = false;  ///< The daemon ran in one process with a node of the job.
    /// Waiting nodes are told of no refused join before this. Only the effects of refused joins may
    /// depend on it, since a journal has no refused joins.
    Instant refusals_untold_until_ = Instant::min();
    std::optional<StopRequested> stop_;
    /// Operators' requests for nodes that were lost.
    std::deque<std::pair<NodeId, LeaveWish>> kept_wishes_;
    std::optional<Verdict> verdict_;
    std::set<NodeId> concerned_;     ///< The nodes that this step concerns.
    std::optional<NodeId> speaker_;  ///< The sender of this step's message: it gets an answer.
    Effects effects_;
    std::vector<JobEvent> job_events_;
};

}  // namespace regroup::rendezvous
