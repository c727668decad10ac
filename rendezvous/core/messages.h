// SPDX-License-Identifier: Apache-2.0
//
// What the daemon and the agents say to each other, as plain values. The rendezvous and the agent's
// core speak in these types and know nothing of bytes; rendezvous/protocol turns them into frames.
//
// The protocol is level-triggered: an agent's every report states the whole truth about its node,
// and the daemon answers with what the node should do. A lost message is therefore repaired by the
// next heartbeat, and receiving one twice changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/core/cause.h"
#include "rendezvous/core/job_policy.h"
#include "rendezvous/core/round_id.h"
#include "rendezvous/core/situation.h"
#include "rendezvous/core/worker_failure.h"

namespace regroup::rendezvous {

/// What a node brings to a round.
struct Offer {
    /// For people and for the order of nodes: the explicit local address, else the host name.
    std::string name;
    /// Workers that the node would start. At least 1.
    std::uint32_t workers = 1;
    std::string role = "default";
    /// The group rank that the node insists on (--node-rank), if any.
    std::optional<std::uint32_t> slot;
    /// Where others reach the node: given by the user, else what the daemon saw. Never a name.
    std::string address;
    /// True when the user gave `address`; then it is used as it is.
    bool address_is_explicit = false;
    /// Other addresses of the node, best first, for when `address` is loopback and others are not.
    std::vector<std::string> other_addresses;
    /// The others have no rendezvous without this node.
    bool hosts_rendezvous = false;
    /// The node and the daemon are one process, and whoever takes the daemon's jobs over does so
    /// after its end: once another such node joins, this one is lost.
    bool ends_with_daemon = false;
    /// No other node can ever come: nobody else knows of its rendezvous.
    bool alone = false;
    /// How long the node waits for a round before it gives up (--join-timeout); zero: not known.
    Duration join_timeout{};
};

enum class NodeState : std::uint8_t {
    /// No worker trains in any round; ready for the next. Workers that keep their processes are
    /// suspended.
    stopped,
    running,   ///< Workers of `NodeReport::round` are alive and wanted.
    stopping,  ///< Workers of `NodeReport::round` are being ended.
    finished,  ///< All workers of `NodeReport::round` ended with success.
};
[[nodiscard]] std::string_view to_string(NodeState state) noexcept;

/// Where a worker stands in its round: what tells who a hang is waiting for.
struct RankPosition {
    std::uint32_t rank = 0;
    std::uint64_t step = 0;        ///< Steps committed.
    std::uint64_t operations = 0;  ///< Collectives issued in this round.
    bool waiting = false;          ///< In a collective, for others.
    std::string doing;             ///< The collective or section, for people.
    bool stopped = false;          ///< Its process is stopped, by a signal or by a debugger.
    /// For how long it has written nothing, if nothing else is known of it.
    Duration silent{};

    friend bool operator==(const RankPosition&, const RankPosition&) = default;
};

/// A worker of the node has made no progress for longer than it may.
struct Hang {
    std::uint32_t rank = 0;
    std::string text;  ///< "rank 3 has been in section 'load' for 12 s (limit 10 s)".
    /// Nothing moves on this node, perhaps because all of it waits for another: the round hangs
    /// once every running member says so. Taken back (no hang) when something moves.
    bool shared = false;
    Duration stood{};  ///< For how long, by then.

    friend bool operator==(const Hang&, const Hang&) = default;
};

/// A worker's connection to another one broke in its round, though the worker itself lives.
struct BrokenLink {
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;  ///< The rank at the other end, which may be dead.
    std::string text;        ///< The rest of a sentence about it: "closed the connection".

    friend bool operator==(const BrokenLink&, const BrokenLink&) = default;
};

/// The whole truth about a node. Sent on every change that the daemon must know, and as heartbeat.
struct NodeReport {
    RoundId round = RoundId::none;  ///< The last round that the node took part in.
    NodeState state = NodeState::stopped;
    /// Port of the socket, already listening, on which the node would serve the next round's store.
    std::uint16_t store_port = 0;
    /// The first failure among the node's workers of `round`, from then on.
    std::optional<WorkerFailure> failure{};
    /// All its workers keep their processes over rounds (and are told of rounds while they live).
    bool elastic = false;
    /// The highest committed step among its workers, over all rounds; 0: none is known.
    std::uint64_t step = 0;
    /// The highest committed step of which a worker process that is alive on the node has the
    /// state, whether it trains or is suspended; 0: there is none.
    std::uint64_t held_step = 0;
    /// The highest committed step of a worker of `round` that has ended since; 0: none is known.
    std::uint64_t ended_step = 0;
    /// While its round is being stopped: for how long at most its workers, which are at work of
    /// their own, may take to suspend, if that is longer than `shutdown_timeout`; else zero.
    Duration at_work{};
    /// With a join: how long ago `round` ended here, or a worker lost a peer, whichever was first.
    /// Zero if neither is so, and without a join.
    Duration ended_ago{};
    /// The node ended `round`, or will not begin it, for it cannot serve that round's store any
    /// more.
    bool store_spent = false;
    /// Why the node is about to leave, from when it wants to; or empty. The others go on without
    /// it after the next step boundary.
    std::string draining{};
    std::optional<Hang> hang{};  ///< In `round`, while it lasts.
    /// Once the stacks of `round` were asked for: where its workers stand. Sent when the stacks
    /// are saved.
    std::vector<RankPosition> positions{};
    /// The alarm that `positions` answer; 0: none.
    std::uint32_t alarm = 0;
    /// In `round`: the first of each worker.
    std::vector<BrokenLink> broken_links{};

    friend bool operator==(const NodeReport&, const NodeReport&) = default;
};

// ---- From the agent.

/// First word on every connection, new or again.
struct Join {
    std::string job;
    NodeId node;
    JobPolicy policy;
    Offer offer;
    NodeReport report;
};
struct Report {
    NodeReport report;
};
/// The node goes away by its own will; its workers are being ended.
struct Leave {
    std::string reason;
    /// Not by its own will: said in place of an agent that is dead, and counts as a loss.
    bool killed = false;
};
/// The first step of `round` is committed; how long this node's part in it took. From the node with
/// rank 0.
struct Resumed {
    RoundId round = RoundId::none;
    std::uint64_t step = 0;
    Duration communicator{};  ///< From the assignment until the group was formed.
    Duration state{};         ///< Until every worker had the state.
    Duration first_step{};    ///< Until the first step was committed.
    /// How long before this word was sent that was: it may have waited for a connection.
    Duration ago{};
};
/// An operator's wish, in place of a Join; answered by Operated, and closed. With `wait`, a drain
/// is answered twice: when it is taken up, and when the nodes have left.
struct Operate {
    enum class Action : std::uint8_t { drain, stop, status };
    std::string job;  ///< Empty: the only one there is.
    Action action = Action::status;
    std::string node;    ///< To drain: its name.
    std::string author;  ///< For the verdict: user and host.
    std::string reason;
    bool wait = false;
};
[[nodiscard]] std::string_view to_string(Operate::Action action) noexcept;
using FromAgent = std::variant<Join, Report, Leave, Resumed, Operate>;

// ---- From the daemon.

/// What a node runs in a round. Of constant size, whatever the world.
struct Assignment {
    RoundId round = RoundId::none;
    std::uint32_t group_rank = 0;
    std::uint32_t group_world_size = 1;
    std::uint32_t first_rank = 0;  ///< The node's workers are [first_rank, first_rank + workers).
    std::uint32_t world_size = 1;
    std::uint32_t role_first_rank = 0;
    std::uint32_t role_world_size = 1;
    std::string master_addr;
    std::uint16_t master_port = 0;
    std::uint32_t restart_count = 0;  ///< Failures so far that were answered by a restart.
    Cause reason;                     ///< Why this round exists.

    friend bool operator==(const Assignment&, const Assignment&) = default;
};
struct Assign {
    Assignment assignment;
};
/// End the workers of `round` and report `stopped`.
struct Stop {
    RoundId round = RoundId::none;
    Cause reason{};
};
/// The round is to change without losing a step: workers suspend at the next step boundary, then
/// the node reports `stopped`. With `leave`, its own workers save their state there and end; those
/// that are suspended, at once.
struct Prepare {
    RoundId round = RoundId::none;
    bool leave = false;
    Cause reason{};
    /// With `leave`: as far as is known its workers train. Who has suspended meanwhile says so
    /// first: what it is to do depends on how far it has come.
    bool if_running = false;
    /// With `leave`: others have gone on to a later state than that of its suspended workers, which
    /// is not to be saved any more.
    bool stale = false;
};
/// A round hangs: save the stacks of its workers before anything is killed, and report
/// `positions`. Said again until the node has answered this alarm.
struct SaveStacks {
    RoundId round = RoundId::none;
    std::uint32_t alarm = 0;  ///< Of `round`, from 1.
    std::string reason;
};
/// The round hung on this worker of the node: end it by force; its failure is a hang.
struct EndWorker {
    RoundId round = RoundId::none;
    std::uint32_t rank = 0;
    HangCulprit reason{};
    bool by_silence = false;  ///< See WorkerFailure.
};
/// The daemon does not count this node as a member: end all workers, then join again.
struct Fenced {
    Cause reason = Cause::GivenUp{};
};
/// All workers of the node have finished `round` and nobody needs the node any more: it may go.
/// (Group rank 0, whose agent serves the store, is needed until the job is closed.)
struct Dismissed {
    RoundId round = RoundId::none;
};
/// Nothing to do; the daemon lives and believes in `round`.
struct Alive {
    RoundId round = RoundId::none;
};
/// Why the node has no assignment yet: the answer to each of its heartbeats.
struct Waiting {
    std::vector<std::string> joined;  ///< Names of the nodes that are there.
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    bool standby = false;  ///< The round is full; this node waits for a place.
    /// The workers of this job keep their processes: start this node's ahead of the round.
    bool prestart = false;
    Situation detail{};
};
/// This node cannot take part, now or ever.
struct Refused {
    Errc code = Errc::invalid_argument;
    Refusal reason{};
};
enum class Outcome : std::uint8_t { succeeded, failed, stopped };
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

/// One loss and the way back, or one planned change, and where the time went. A stage that did not
/// take place, or that nobody could measure, is zero.
struct Incident {
    RoundId round = RoundId::none;       ///< The one that ended.
    RoundId next_round = RoundId::none;  ///< The one that took its place.
    bool planned = false;                ///< Growth or a drain: nothing was lost.
    /// The next round ended, with the job or for a loss of its own, before its first step: nothing
    /// has recovered, or changed. The time until that end is `first_step`, and there is no `step`.
    bool cut_short = false;
    Cause cause{};
    Succession decision{};
    Duration detect{};  ///< From the first sign of it until it was held for true.
    Duration decide{};  ///< Until the round was told to stop (last call, delay included).
    Duration stop{};    ///< Until the last worker of the round was gone or suspended.
    /// Until the next round was assigned; and, after that, until rank 0's process had come to it.
    Duration join{};
    Duration communicator{};  ///< Until its group was formed.
    Duration state{};         ///< Until every worker had the state.
    Duration first_step{};    ///< Until its first step was committed (or its workers ran).
    std::uint64_t step = 0;   ///< That step.
    /// Steps up to the last one that is known to have been committed, `step` included, of which no
    /// process had kept the state: they are done again.
    std::uint64_t lost_steps = 0;
    /// The daemon had ended as well, with all who knew how far the job had come: `lost_steps` is
    /// what is known of it, and the times are those since the daemon is back.
    bool lost_at_least = false;

    [[nodiscard]] Duration total() const noexcept {
        return detect + decide + stop + join + communicator + state + first_step;
    }
    friend bool operator==(const Incident&, const Incident&) = default;
};
/// Where the time of a job went, or of the part of it that somebody has seen.
struct Goodput {
    Duration lasted{};       ///< From the first round's assignment.
    Duration lost{};         ///< Of that, in incidents.
    Duration lost_at_end{};  ///< Besides, from the first sign of what ended the job until it ended.
    std::uint32_t count = 0;       ///< Of incidents.
    std::uint32_t planned = 0;     ///< Of these: growth, or a node that left in order.
    std::uint32_t cut_short = 0;   ///< Of all: no first step came of them.
    std::uint64_t lost_steps = 0;  ///< Of all of them: committed steps that are done again.
    bool lost_at_least = false;    ///< In some of them more was lost than is known.

    void add(const Incident& incident) noexcept;
    friend bool operator==(const Goodput&, const Goodput&) = default;
};
/// A recovery is complete, or was cut short, which is told with the next one that is complete, or
/// with the job's end. To every member of the round.
struct Recovered {
    Incident incident;
};

/// Exit codes of a job that no worker is to blame for.
inline constexpr int kExitNoProgress = 4;  ///< Round after round without one more committed step.
inline constexpr int kExitRequeue = 75;    ///< The state is saved; start the job again.

/// How and why a job ended. Never changes once given.
struct Verdict {
    Outcome outcome = Outcome::stopped;
    Ending reason{};
    Author author{};
    int exit_code = 1;  ///< What every agent exits with.
    std::uint32_t restarts = 0;
    std::optional<WorkerFailure> failure;  ///< The first one of the last round.
    Goodput goodput;                       ///< Of the whole job.

    friend bool operator==(const Verdict&, const Verdict&) = default;
};
struct Closed {
    Verdict verdict;
};
/// The answer to Operate.
struct Operated {
    bool done = false;
    std::string text;  ///< For people; for `status`, a JSON object.
};
/// Another daemon leads; this one knows nothing. `endpoint` is the leader's, or empty.
struct Elsewhere {
    std::string endpoint;
};
using FromDaemon = std::variant<Assign, Stop, Prepare, SaveStacks, EndWorker, Fenced, Dismissed,
                                Alive, Waiting, Refused, Recovered, Closed, Operated, Elsewhere>;

}  // namespace regroup::rendezvous
