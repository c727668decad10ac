// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/failure_detector.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/rank_assignment.h"

namespace regroup::rendezvous {

// Events: what happened outside.

/// A node's first word on a connection. The caller has filled in `offer.address`.
struct NodeJoined {
    NodeId node;
    JobPolicy policy;
    Offer offer;
    NodeReport report;
};
struct NodeReported {
    NodeId node;
    NodeReport report;
};
/// The node's connection broke. Only a suspicion: it has a moment to come back.
struct NodeDisconnected {
    NodeId node;
};
/// The node said goodbye.
struct NodeLeft {
    NodeId node;
    std::string reason;
};
/// An operator ends the job for everyone.
struct StopRequested {
    std::string author;
    std::string reason;
};
/// An operator wants a node, by its name, to leave at the next step boundary.
struct DrainRequested {
    std::string node;
    std::string author;
    std::string reason;
};
/// A new round has committed its first step.
struct NodeResumed {
    NodeId node;
    Resumed resumed;
};
/// This machine was brought to its present state from a journal: no node is connected, and all have
/// the time of the heartbeat timeout to come back. Their rounds go on.
struct Restarted {};
using Event = std::variant<NodeJoined, NodeReported, NodeDisconnected, NodeLeft, StopRequested,
                           DrainRequested, NodeResumed, Restarted>;

/// What the shell must now do: send these, in this order.
struct Send {
    NodeId node;
    FromDaemon message;
};
using Effects = std::vector<Send>;

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

    /// When `advance` is next due; Instant::max() when nothing is pending.
    [[nodiscard]] Instant next_deadline() const;

    /// True if `event` says nothing new: a heartbeat that would be answered by Alive and changes
    /// only when its node was last heard, and the step. Of a row of these for one node, all but the
    /// last may be left out of a journal, and that one may be put just before the next other event.
    [[nodiscard]] bool is_routine(const Event& event) const;

    [[nodiscard]] Phase phase() const noexcept { return phase_; }
    [[nodiscard]] RoundId round() const noexcept { return round_; }
    [[nodiscard]] const JobPolicy& policy() const noexcept { return policy_; }
    /// True if a node of this name (or id) is in the job: one that can be drained.
    [[nodiscard]] bool knows(const std::string& name) const;
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
        std::string drain;  // Why an operator wants it to leave, or empty.
    };
    /// Who is taken out, and how sure it is that it went in order.
    enum class Departure : std::uint8_t { left, lost };

    void on(Instant now, const NodeJoined& event);
    void on(Instant now, const NodeReported& event);
    void on(Instant now, const NodeDisconnected& event);
    void on(Instant now, const NodeLeft& event);
    void on(Instant now, const StopRequested& event);
    void on(Instant now, const DrainRequested& event);
    void on(Instant now, const NodeResumed& event);
    void on(Instant now, const Restarted& event);

    [[nodiscard]] std::optional<Refused> refusal(Instant now, const NodeJoined& event) const;
    /// Any word from a node: it lives, and `report` is the truth about it.
    void hear(Instant now, const NodeId& id, Node& node, const NodeReport& report);
    /// True if a report that says nothing new is answered with more than Alive.
    [[nodiscard]] bool wants_word(const NodeId& id, const Node& node) const;
    void absorb(Instant now, const NodeId& id, const Node& node);
    void absorb_member(Instant now, const NodeId& id, const Node& node);
    void absorb_running(Instant now, const NodeId& id, const Node& node);
    void absorb_preparing(Instant now, const NodeId& id, const Node& node);
    void absorb_stopping(Instant now, const NodeId& id, const Node& node);
    void update_ready(Instant now, const NodeId& id);
    /// An awaited member has no workers any more.
    void count_out(const NodeId& id, const Node& node);
    /// The one place where a node is taken out, however its end was learned. `how` is told after
    /// its name: "left: SIGTERM", "is lost: silent for 3 s".
    void lose(Instant now, const NodeId& id, const std::string& how, Departure departure);

    // Changes that lose no step.

    [[nodiscard]] bool is_resident() const;
    [[nodiscard]] bool is_leaving(const Node& node) const;
    [[nodiscard]] std::string why_leaving(const Node& node) const;
    /// A node has begun to want to leave.
    void begin_leaving(Instant now, const NodeId& id, const Node& node);
    /// The round is to change although nothing is wrong with it.
    void begin_change(Instant now, const std::string& reason);
    void begin_preparing(Instant now, const std::string& reason);
    void tell_to_prepare(const NodeId& id, const Node& node);
    /// A node that is in no round and is to leave.
    void tell_to_leave(const NodeId& id, const Node& node);

    void begin_stopping(Instant now, const std::string& reason);
    /// Who still has workers is told to end or park them.
    void stop_awaited(Instant now);
    /// True if its workers have reached the step boundary and save their state there, in which
    /// they must not be disturbed.
    [[nodiscard]] bool may_be_saving(const Node& node) const {
        return boundary_ && is_leaving(node);
    }
    /// Ends the round if nobody is awaited any more.
    void end_if_all_out(Instant now);
    void end_stopping(Instant now);
    [[nodiscard]] bool close_if_deserted();
    /// `door_closed`: the last call is over. Only time decides that, never a report.
    void try_form(Instant now, bool door_closed = false);
    void form(Instant now);
    [[nodiscard]] Verdict failure_verdict() const;
    [[nodiscard]] Verdict departure_verdict() const;
    [[nodiscard]] Verdict drained_verdict() const;
    void close(Verdict verdict);
    void begin_notices(Instant now);
    void send_notices(Instant now);
    void tell_waiting(const std::string& detail);

    [[nodiscard]] bool may_grow() const;
    [[nodiscard]] std::string name_of(const NodeId& id) const;
    [[nodiscard]] std::string names_of(const std::set<NodeId>& ids) const;

    JobPolicy policy_;
    FailureDetector detector_;
    RankTable ranks_;
    Phase phase_ = Phase::gathering;
    RoundId round_ = RoundId::none;
    RoundId round_floor_ = RoundId::none;  // No round may have this number or a lower one.

    // Ordered containers on purpose: iteration order is part of the behaviour.
    std::map<NodeId, Node> nodes_;
    std::map<NodeId, Assignment> members_;  // Of `round_`, those still there.
    /// Who could take part in a round at once: no workers, no suspicion, not a member.
    std::set<NodeId> ready_;
    /// Members awaited: in running those not finished, in stopping those with live workers.
    std::set<NodeId> awaited_;

    Instant round_began_{};
    Instant deadline_ = Instant::max();  // Of last_call, preparing or stopping.
    Instant notice_at_ = Instant::max();
    Duration notice_interval_{};

    std::string cause_;                     // Why the last stop, or what formed the round.
    std::optional<WorkerFailure> failure_;  // The first in `round_`.
    bool lost_member_ = false;              // `round_` lost a member that had not finished.
    bool all_finished_ = true;              // No member of `round_` was stopped short.
    bool someone_finished_ = false;         // Some member of `round_` has, even if lost since.
    bool parked_ = false;             // A member that goes on has parked at the step boundary.
    bool boundary_ = false;           // Some member has reached the step boundary, and so have all.
    std::set<NodeId> dismissed_;      // Were told that they may leave `round_`.
    std::set<std::string> departed_;  // Names of those who have.
    bool survivors_first_ = false;    // A round has ended: form the next with who is left.
    std::string evacuation_;          // Why all nodes leave and the job ends; or empty.
    std::string evacuated_by_;
    std::uint32_t failures_ = 0;  // Charged to the budget.
    std::optional<Verdict> verdict_;
    Effects effects_;
};

}  // namespace regroup::rendezvous
