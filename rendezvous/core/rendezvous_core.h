// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/failure_detector.h"
#include "rendezvous/core/hang_culprit.h"
#include "rendezvous/core/incident_ledger.h"
#include "rendezvous/core/job_status.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_strikes.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/reached_steps.h"
#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/restart_budget.h"

namespace regroup::rendezvous {

enum class Phase : std::uint8_t {
    gathering,
    last_call,
    running,
    preparing,  ///< Running on to the next step boundary, where its workers park or leave.
    stopping,
    closed,
};
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

/// The membership of one job, as a pure state machine.
///
/// It owns no socket, timer, thread or clock. Same policy and same (instant, event) sequence, same
/// effects, on any machine; the daemon and the simulator drive this very class. Memory is bounded
/// by the number of nodes, which is bounded by `kNodesLimit`. Not thread-safe: one owner.
///
///                 nodes_min there           door closes
///     gathering -----------------> last_call -----------> running -- all finished --> closed
///       ^   \__ nodes_max there, or all survivors _________^ |  |                       ^
///       |       of the last round                            |  | node joined, drained  |
///       |                                      worker failed,|  v (resident rounds)     |
///       |                                      node lost,    | preparing                |
///       |                                      left, joined  |  |  | failed, lost,      |
///       |                                                    v  |  v too slow           |
///       +--------- all workers gone or parked ----------- stopping --- budget gone -----+
///       +--------- all workers parked ----------------------+
///
/// A round is *resident* if the workers of all its members keep their processes. It is changed, for
/// growth or because a node leaves, at a step boundary and without losing a step (preparing); any
/// other is stopped for that.
///
/// Who is to blame for a stop is decided when the last worker is gone, not at the first report: a
/// worker often fails because its peer's node went away, and that word may come later.
class RendezvousCore {
   public:
    /// More nodes than this in one job are refused as overloaded.
    static constexpr std::size_t kNodesLimit = 16384;
    /// A node that offers more workers than this is refused.
    static constexpr std::uint32_t kWorkersLimit = 4096;

    /// Requires `validate(policy)`.
    explicit RendezvousCore(JobPolicy policy);

    /// Applies `event`, seen at `now`; `now` never decreases from one call to the next. Any word
    /// from a node is a sign of life. What a node says of a round that is over changes nothing but
    /// earns it a Stop, Fenced or Assign, so no lost message strands it.
    [[nodiscard]] Effects step(Instant now, const Event& event);

    /// Applies the mere passing of time. Due at `next_deadline()`; early is harmless.
    [[nodiscard]] Effects advance(Instant now);

    /// When `advance` is next due; Instant::max() when nothing is pending. Earlier than that,
    /// `advance` changes nothing at all, so that a journal need not know of it.
    [[nodiscard]] Instant next_deadline() const;
    /// When `advance` may next decide something. What it does before that only tells those who wait
    /// what they wait for, and a journal need not know of it either.
    [[nodiscard]] Instant next_decision() const;

    /// True if `event` says nothing new: a heartbeat that would be answered by Alive and changes
    /// only when its node was last heard, and the step. Of a row of these for one node, all but the
    /// last may be left out of a journal, and that one may be put just before the next other event.
    [[nodiscard]] bool is_routine(const Event& event) const;

    [[nodiscard]] Phase phase() const noexcept { return phase_; }
    [[nodiscard]] RoundId round() const noexcept { return round_; }
    [[nodiscard]] const JobPolicy& policy() const noexcept { return policy_; }
    /// How long nodes have to come back after `Restarted`, at most.
    [[nodiscard]] Duration absence_limit() const noexcept { return detector_.absence_limit(); }
    /// Everything that people may want to know of the job. O(nodes).
    [[nodiscard]] JobStatus status(Instant now) const;
    /// The next round is held back for a while, because the last ones ended too soon.
    [[nodiscard]] bool is_resting() const noexcept { return rest_until_ != Instant::max(); }
    /// The node is not let into a round for a while; `status` says why.
    [[nodiscard]] bool is_set_aside(const NodeId& node) const;
    /// How many nodes of this name (or id) are in the job: those that a drain of it is for.
    [[nodiscard]] std::size_t nodes_called(const std::string& name) const;
    /// Nodes that the job knows, members and waiting ones.
    [[nodiscard]] std::size_t nodes_count() const noexcept { return nodes_.size(); }
    [[nodiscard]] const std::optional<Verdict>& verdict() const noexcept { return verdict_; }

    /// One sentence: what the job does or waits for, for whom, and for how long at most. Shown by
    /// status, pinned by transcripts, never parsed.
    [[nodiscard]] std::string explain(Instant now) const;

   private:
    struct Node {
        Offer offer;
        NodeReport report;
        std::string drain;      // Why an operator wants it to leave, or empty.
        bool detained = false;  // It wants to leave, and takes part in one more round first.
        Instant stopped_at{};   // When it was first heard of as it is, if it is `stopped`.
        Instant at_work_until = Instant::min();  // Its workers may park as late as that.
        Instant ended_at = Instant::max();       // It saw its round end when nobody listened.
    };
    enum class Departure : std::uint8_t { left, lost, replaced };  // Who is replaced is lost.
    struct Gone {
        std::string name;
        std::string how;  // "left: SIGTERM", "is lost: silent for 3 s".
    };
    /// A hang, from the first word of it until the round ends because of it.
    struct Inquiry {
        NodeId node;  // Who said so.
        Hang hang;
        Instant sign{};  // Since when nothing moved.
        Instant deadline{};
        std::uint32_t alarm = 0;
        std::set<NodeId> unanswered;  // Members whose stacks are not saved yet.
        /// Whom the round hangs on; until then the stacks are being saved.
        std::optional<HangCulprit> culprit;
        NodeId culprit_node;
    };

    void on(Instant now, const NodeJoined& event);
    void on(Instant now, const NodeReported& event);
    void on(Instant now, const NodeDisconnected& event);
    void on(Instant now, const NodeLeft& event);
    void on(Instant now, const StopRequested& event);
    void on(Instant now, const DrainRequested& event);
    void on(Instant now, const NodeResumed& event);
    void on(Instant now, const Restarted& event);
    void on(Instant now, const JobFollows& event);

    [[nodiscard]] std::optional<Refused> refusal(Instant now, const NodeJoined& event) const;
    /// "node b is lost: silent for 3 s", "node a and node b are lost: ...".
    [[nodiscard]] static std::string describe_gone(const std::vector<Gone>& gone);
    /// Any word from a node: it lives, and `report` is the truth about it.
    void hear(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    /// The report of a node takes the place of its last one.
    void learn(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    /// True if a report that says nothing new is answered with more than Alive.
    [[nodiscard]] bool wants_word(const NodeId& id, const Node& node) const;
    void absorb(Instant now, const NodeId& id, const Node& node);
    void absorb_member(Instant now, const NodeId& id, const Node& node);
    void absorb_running(Instant now, const NodeId& id, const Node& node);
    void absorb_preparing(Instant now, const NodeId& id, const Node& node);
    void absorb_stopping(Instant now, const NodeId& id, const Node& node);
    void update_ready(Instant now, const NodeId& id);
    void count_out(const NodeId& id, const Node& node);  // It has no workers any more.
    /// The one place where a node is taken out, however its end was learned. `how` is told after
    /// its name: "left: SIGTERM", "is lost: silent for 3 s"; `sign` is the first sign of it.
    void lose(Instant now, const NodeId& id, const std::string& how, Departure departure,
              Instant sign);

    // Changes that lose no step (rendezvous_planned.cc).

    [[nodiscard]] bool is_resident() const noexcept { return !members_.empty() && mortal_ == 0; }
    [[nodiscard]] static bool wants_to_leave(const Node& node) {
        return !node.drain.empty() || !node.report.draining.empty();
    }
    [[nodiscard]] bool is_leaving(const Node& node) const {
        return !evacuation_.empty() || (wants_to_leave(node) && !node.detained);
    }
    [[nodiscard]] bool means_to_stay(const Node& node) const;  // The next rounds count on it.
    /// A node that has begun to want to leave takes part in one more round if the others cannot go
    /// on, or only without the state; or if its workers would save different steps otherwise.
    void detain_if_needed(Instant now, const NodeId& id, Node& node);
    [[nodiscard]] bool is_behind(const Node& node) const;  // Another node has a later state.
    /// The round is over, and on the node somebody has not come as far as the job.
    [[nodiscard]] bool lags(const Node& node) const;
    /// The round has ended short of the boundary at which nodes were to leave. True if all were to,
    /// and take part in one more round instead.
    [[nodiscard]] bool detain_laggards(Instant now);
    void decide_again();
    /// There is no such round: all who were to leave do so with what they have. False if none were.
    [[nodiscard]] bool leave_after_all(Instant now);
    void release_detained(Instant now);  // The others have the state, or there is no such round.
    [[nodiscard]] std::string why_leaving(const Node& node) const;
    /// Why nobody can go on without a node that leaves; or empty.
    [[nodiscard]] std::string why_all_leave(const NodeId& id, const Node& node) const;
    /// A node has begun to want to leave.
    void begin_leaving(Instant now, const NodeId& id, const Node& node);
    /// An operator's wish holds for a node that is lost and comes back: until its agent has ended.
    void keep_drain(const NodeId& id, const Node& node);
    [[nodiscard]] bool resume_drain(const NodeId& id, Node& node);
    /// The round is to change although nothing is wrong with it.
    void begin_change(Instant now, const std::string& reason);
    void begin_preparing(Instant now, const std::string& reason);
    void begin_planned_incident(Instant now);
    void tell_to_prepare(const NodeId& id, const Node& node);
    /// A node that is in no round and is to leave.
    void tell_to_leave(const NodeId& id, const Node& node);
    /// The others have gone on without it: what its workers have is not to be saved any more.
    [[nodiscard]] bool is_stale(const NodeId& id, const Node& node) const;
    /// One that runs a round of which it is no member any more.
    void tell_of_the_end(const NodeId& id, const Node& node);
    /// When the running round is stopped for growth; Instant::max() if it is not.
    [[nodiscard]] Instant grow_at() const;
    [[nodiscard]] bool may_grow() const;
    /// Tells waiting nodes that are new among those whose workers should be started.
    void offer_prestart(Instant now);

    // Hangs (rendezvous_hangs.cc).

    /// Since when it went wrong, if that was long before the worker failed.
    [[nodiscard]] std::optional<Instant> sign_of(const WorkerFailure& failure) const;
    void consider_hang(Instant now, const NodeId& id, const Node& node);
    void begin_inquiry(Instant now, const NodeId& id, const Hang& hang);
    /// What the node says may be its answer to the inquiry; if not, it is asked again.
    void hear_answer(const NodeId& id, const NodeReport& report);
    void ask_for_stacks(const NodeId& id);
    void conclude_inquiry(Instant now);
    void overdue_inquiry(Instant now);
    void stop_hung(Instant now, std::uint32_t rank, const NodeId& id, const std::string& reason);

    // Connections between workers that break (rendezvous_links.cc).

    /// The member with this rank, if it is still there.
    [[nodiscard]] std::optional<NodeId> node_with(std::uint32_t rank) const;
    [[nodiscard]] std::string text_of(const BrokenLink& link, bool by_both) const;
    /// The rank at the other end says so, too.
    [[nodiscard]] bool is_mutual(const BrokenLink& link) const;
    void consider_links(Instant now, const Node& node);
    /// Until when a break may be explained by something else; Instant::max() if there is none.
    [[nodiscard]] Instant severed_until() const;
    void overdue_links(Instant now);
    void stop_severed(Instant now, const std::string& cause);
    /// Whether the round stops for a connection that broke, or since a node gave it up, and the
    /// failure by itself shows that it may be why.
    [[nodiscard]] bool explains_break(const WorkerFailure& failure) const;
    /// The round is over: takes for its cause the failure that may be why, if any may.
    void explain_break();
    bool excuse_for_store();  // True if a node could not serve it: no error is the cause then.
    /// A node has ended the round for itself, unasked.
    void stop_given_up(Instant now, const Node& node);

    // From one round to the next (rendezvous_rounds.cc).

    /// `planned`: nothing is wrong with the round. `sign`: the first of what is, else `now`.
    void begin_stopping(Instant now, const std::string& reason, bool planned = false,
                        std::optional<Instant> sign = std::nullopt);
    void stop_awaited(Instant now);  // Who still has workers is told to end or park them.
    /// True if its workers have reached the step boundary and save their state there, in which
    /// they must not be disturbed.
    [[nodiscard]] bool may_be_saving(const Node& node) const {
        return boundary_ && is_leaving(node);
    }
    void end_if_all_out(Instant now);  // If nobody is awaited any more.
    void end_stopping(Instant now);
    [[nodiscard]] bool close_if_deserted(Instant now);
    /// `door_closed`: the last call is over. Only time decides that, never a report.
    void try_form(Instant now, bool door_closed = false);
    /// The highest step of which somebody who is ready has the state.
    [[nodiscard]] std::uint64_t held_by_ready() const;
    /// True while a round would lose state that a node has which is not ready but about to be.
    [[nodiscard]] bool awaits_holder(Instant now);
    /// If the round has lost the state, of which a waiting node has some, it is given up.
    [[nodiscard]] bool begins_behind(Instant now, const Resumed& resumed);
    void form(Instant now);
    void begin_round(Instant now);
    void lose_silent(Instant now);
    void lose_predecessors(Instant now, const NodeId& host);
    void lose_stuck(Instant now);
    [[nodiscard]] Instant stopped_by() const;  // By then all members have, or are lost.
    /// What every step and every advance ends with.
    void follow_up(Instant now);
    [[nodiscard]] std::string decision(const std::vector<Member>& members) const;
    void close(Instant now, Verdict verdict);

    // What an end costs (rendezvous_charges.cc).

    /// Charges the end of the round; the verdict, if that was too much.
    [[nodiscard]] std::optional<Verdict> settle(Instant now);
    [[nodiscard]] std::optional<Verdict> settle_losses(Instant now);
    [[nodiscard]] std::optional<Verdict> settle_failure(Instant now);
    void settle_severed(Instant now);
    [[nodiscard]] Reaction reaction_to(const WorkerFailure& failure) const;
    void strike(Instant now, const std::string& name);
    /// Who was set aside for strikes comes back, since nodes are few.
    void pardon(Instant now);
    void update_named(Instant now, const std::vector<std::string>& names);
    [[nodiscard]] Verdict failure_verdict(Charge charge) const;
    [[nodiscard]] Verdict hopeless_verdict() const;
    [[nodiscard]] Verdict losses_verdict() const;
    [[nodiscard]] Verdict stagnation_verdict() const;
    [[nodiscard]] Verdict departure_verdict() const;
    [[nodiscard]] Verdict alone_verdict() const;
    /// After a failure: when the first of those who wait for more nodes would give up, and after
    /// how long; Instant::max() if nobody waits, or for something else.
    struct Wait {
        Instant until = Instant::max();
        Duration lasts{};
    };
    [[nodiscard]] Wait wait_for_nodes() const;
    [[nodiscard]] Verdict want_verdict(Duration waited) const;
    [[nodiscard]] Verdict drained_verdict() const;

    // What people and nodes are told (rendezvous_telling.cc, rendezvous_status.cc).

    void begin_notices(Instant now);
    void send_notices(Instant now);
    /// Who has just come to wait hears at once what for, and that it may.
    void tell_newcomers(Instant now);
    /// Why the node is set aside, if it waits because of that.
    [[nodiscard]] std::optional<std::string> why_aside(Instant now, const NodeId& id,
                                                       const Node& node) const;
    /// Who is here and set aside, and why: "; node b is set aside for 9.0 s: ...", or empty.
    [[nodiscard]] std::string asides(Instant now) const;
    void tell_waiting(Instant now, const std::string& detail);
    [[nodiscard]] Waiting notice(const std::string& detail) const;
    void tell_recovered(const std::vector<Incident>& incidents);
    /// A member confirms by its report that it runs the round.
    void confirm(Instant now, const NodeId& id, const NodeReport& before, const NodeReport& report);
    [[nodiscard]] bool trains(const NodeReport& before, const NodeReport& report) const;
    [[nodiscard]] JobStatus::Node status_of(Instant now, const NodeId& id, const Node& node) const;
    [[nodiscard]] std::string name_of(const NodeId& id) const;
    [[nodiscard]] std::string names_of(const std::set<NodeId>& ids) const;

    JobPolicy policy_;
    FailureDetector detector_;
    RankTable ranks_;
    RestartBudget budget_;
    NodeStrikes strikes_;
    IncidentLedger ledger_;
    Phase phase_ = Phase::gathering;
    RoundId round_ = RoundId::none;
    RoundId round_floor_ = RoundId::none;  // No round may have this number or a lower one.
    // Ordered containers on purpose: iteration order is part of the behaviour.
    std::map<NodeId, Node> nodes_;
    std::map<NodeId, Assignment> members_;                // Of `round_`, those still there.
    std::vector<std::pair<NodeId, std::string>> roster_;  // Of the last round: ids, names by rank.
    std::size_t mortal_ = 0;  // Members whose workers end with the round.
    /// Who could take part in a round at once: no member, nor suspected, leaving or set aside.
    std::set<NodeId> ready_;
    /// Members awaited: in running those not finished, in stopping those with live workers.
    std::set<NodeId> awaited_;
    std::set<NodeId> newcomers_;  // Have come to wait in this very step.
    /// Of those ready, whose workers are being started ahead of a round, and since when.
    std::map<NodeId, Instant> prestarted_;
    std::set<NodeId> unconfirmed_;  // Members that have not said that they run `round_`.

    std::optional<Instant> first_began_;
    Instant round_began_{};
    Instant round_ended_{};                // When it was told to stop.
    Instant deadline_ = Instant::max();    // Of last_call, preparing or stopping.
    Instant rest_until_ = Instant::max();  // No round is formed before; max: no rest.
    Instant hold_until_ = Instant::max();  // Nor while a holder of the state is awaited,
    std::optional<Instant> hold_since_;    // which began then.
    Instant notice_at_ = Instant::max();
    Duration notice_interval_{};
    std::string cause_;                     // Why the last stop, or what formed the round.
    std::optional<WorkerFailure> failure_;  // The first in `round_`.
    std::set<NodeId> hanging_;              // Of those awaited, who says that `round_` hangs.
    std::optional<Inquiry> inquiry_;
    std::uint32_t alarms_ = 0;             // In `round_`.
    std::optional<Instant> severed_at_;    // When a connection in `round_` was first said to break.
    bool severed_ = false;                 // `round_` ended for it; a failure would explain it.
    bool given_up_ = false;                // `round_` ended since a node did, for no known reason.
    bool blameless_ = false;               // `failure_` is nobody's fault that we could name.
    bool lost_member_ = false;             // `round_` lost a member that had not finished.
    std::vector<std::string> lost_names_;  // Of those, who did not go by their own will.
    std::vector<Gone> gone_;               // All of those, in order.
    bool all_finished_ = true;             // No member of `round_` was stopped short.
    bool someone_finished_ = false;        // Some member of `round_` has, even if lost since.
    bool parked_ = false;                  // A member that goes on has parked at the step boundary.
    bool boundary_ = false;           // Some member has reached the step boundary, and so have all.
    bool survivors_first_ = false;    // A round has ended: form the next with who is left.
    bool expects_resumed_ = false;    // `round_` will say itself when it trains,
    bool is_elastic_ = false;         // as do all of a job some of whose workers kept processes.
    std::set<NodeId> dismissed_;      // Were told that they may leave `round_`.
    std::set<std::string> departed_;  // Names of those who have.
    std::set<NodeId> survivors_;      // Of that round.
    std::set<NodeId> missing_;        // Of these, who is under suspicion.
    std::uint64_t step_at_form_ = 0;
    ReachedSteps reached_;
    std::optional<Instant> trains_since_;  // It has committed a step, and has not said so yet.
    std::set<NodeId> detained_;
    std::deque<std::pair<NodeId, std::string>> kept_drains_;  // Of nodes that were lost.
    std::string evacuation_;  // Why all nodes leave and the job ends; or empty.
    std::string evacuated_by_;
    bool housed_ = false;    // The daemon that this job had was of one process with a node.
    std::string postponed_;  // That reason, while they take part in one more round; or empty.
    int extra_rounds_ = 0;   // In a row, for which that was put off.
    std::optional<Verdict> verdict_;
    Effects effects_;
};

}  // namespace regroup::rendezvous
