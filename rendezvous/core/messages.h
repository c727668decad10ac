// SPDX-License-Identifier: Apache-2.0
//
// The messages between the daemon and the agents, as plain values. The cores of the daemon and the
// agent use these types and know nothing of bytes; rendezvous/protocol turns them into frames.
//
// The protocol is level-triggered: every report of an agent states the complete state of its node,
// and the daemon answers with what the node should do. The next heartbeat therefore repairs a lost
// message, and receiving a message twice changes nothing.
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
#include "rendezvous/core/partial_finish.h"
#include "rendezvous/core/rank_set.h"
#include "rendezvous/core/round_id.h"
#include "rendezvous/core/situation.h"
#include "rendezvous/core/telemetry.h"
#include "rendezvous/core/worker_failure.h"

namespace regroup::rendezvous {

/// The workers and facts that a node offers to a round.
struct Offer {
    /// For people and for the order of nodes: the explicit local address, else the host name.
    std::string name;
    /// Number of workers that the node would start. At least 1.
    std::uint32_t workers = 1;
    std::string role = "default";
    /// The group rank that the node insists on (--node-rank), if any.
    std::optional<std::uint32_t> slot;
    /// New nodes are placed in the natural order of these keys, those without one last. Before its
    /// last dot is the path of switches to the node: "s0.s4.node7".
    std::string rank_key;
    /// The IP address at which others reach the node: from the user, otherwise the peer address
    /// that the daemon saw. Never a host name.
    std::string address;
    /// True when the user gave `address`; then it is used unchanged.
    bool address_is_explicit = false;
    /// Other addresses of the node, best first, for when `address` is loopback and others are not.
    std::vector<std::string> other_addresses;
    /// The other nodes have no rendezvous without this node.
    bool hosts_rendezvous = false;
    /// The node and the daemon are one process. A later daemon takes over the jobs only after this
    /// process has ended. Therefore, when another such node joins, this one is lost.
    bool ends_with_daemon = false;
    /// No other node can join: no other launcher knows the address of its rendezvous.
    bool alone = false;
    /// How long the node waits for a round before it gives up (--join-timeout); zero: not known.
    Duration join_timeout{};
    /// Random, and known to the agent and the daemon only: it proves that a later connection of
    /// this NodeId comes from the same agent.
    std::string secret;
    /// Random, and given to the members of each round whose store this node serves: from it they
    /// derive the keys of that round. At least 22 characters.
    std::string store_key;
    /// A digest of the workers' command, the program and its arguments: two nodes with the same one
    /// run the same command. Empty: not known.
    std::string command;
    /// The job has the usual name, which another one may have by mistake: the node joins only nodes
    /// of its role that run the same command.
    bool same_command_only = false;
    bool reads_logs = false;  ///< It answers ReadLog.

    friend bool operator==(const Offer&, const Offer&) = default;
};

/// One of the two outputs of a worker.
enum class LogStream : std::uint8_t { out, err };
[[nodiscard]] std::string_view to_string(LogStream stream) noexcept;

/// A place in the output of a rank, and how much is wanted from there.
struct LogWish {
    std::uint32_t rank = 0;
    LogStream stream = LogStream::out;
    /// Where the reader is: a node, its file, and the next byte. If the rank writes to another file
    /// now, the answer begins with that. Empty: the reader begins.
    std::string node{};
    std::string file{};
    std::uint64_t offset = 0;
    std::uint32_t lines = 0;  ///< For a reader that begins: how many of the last lines.

    friend bool operator==(const LogWish&, const LogWish&) = default;
};

enum class NodeState : std::uint8_t {
    /// No worker trains in any round; ready for the next one. Elastic workers are suspended.
    stopped,
    running,   ///< Workers of `NodeReport::round` are alive and wanted.
    stopping,  ///< Workers of `NodeReport::round` are being ended.
    finished,  ///< All workers of `NodeReport::round` ended with success.
};
[[nodiscard]] std::string_view to_string(NodeState state) noexcept;

/// A collective that a rank has called.
struct CalledCollective {
    std::uint64_t number = 0;  ///< In its group, from 1.
    std::string kind{};        ///< "all_reduce"
    /// The arguments that must be the same on all ranks: "4096 float32"; empty: none.
    std::string arguments{};

    friend bool operator==(const CalledCollective&, const CalledCollective&) = default;
};

/// The position of a rank in one of its groups. Collectives are counted in the order in which the
/// program calls them, which is the same on all ranks of the group.
struct GroupPosition {
    std::uint64_t id = 0;    ///< The same on all ranks of the group.
    std::string name{};      ///< For people: "nccl group tp0".
    std::uint32_t size = 0;  ///< Ranks; 0: unknown.
    std::uint32_t rank = 0;  ///< Of the worker, in the group.
    std::uint64_t entered = 0;
    std::uint64_t started = 0;  ///< Begun by the device.
    std::uint64_t completed = 0;
    bool knows_starts = false;  ///< Otherwise `started` is 0.
    bool knows_ends = false;    ///< Otherwise more may have ended than `completed`.
    /// For how long it has been in the first collective that is not complete. If ends are not
    /// known: since it entered the last one.
    Duration stood{};
    /// The collective of `stood`, and the last ones. In order.
    std::vector<CalledCollective> called{};
    /// The rank in the group with which it exchanges a message that is not complete.
    std::optional<std::uint32_t> peer{};

    friend bool operator==(const GroupPosition&, const GroupPosition&) = default;
};

/// The position of a worker in its round. Used to find the rank that a hanging round waits for.
struct RankPosition {
    std::uint32_t rank = 0;
    std::uint64_t step = 0;        ///< Steps committed.
    std::uint64_t operations = 0;  ///< Collectives issued in this round.
    bool waiting = false;          ///< In a collective, for others.
    std::string doing;             ///< The collective or section, for people.
    bool stopped = false;          ///< Its process is stopped, by a signal or by a debugger.
    /// How long the worker has written nothing, if nothing else is known about it.
    Duration silent{};
    std::string activity{};               ///< Of its process, for people: "stopped by a signal".
    std::vector<GroupPosition> groups{};  ///< Those in which it is longest first.

    friend bool operator==(const RankPosition&, const RankPosition&) = default;
};

/// A worker of the node has made no progress for longer than its limit.
struct Hang {
    std::uint32_t rank = 0;
    std::string text;  ///< "rank 3 has been in section 'load' for 12 s (limit 10 s)".
    /// No worker of this node makes progress, perhaps because all wait for another node. The round
    /// hangs once every running member reports this. The agent withdraws it (sends no hang) when a
    /// worker makes progress.
    bool shared = false;
    Duration stood{};  ///< How long there had been no progress by then.
    /// The rank has been in a collective for longer than that usually takes, which is no hang
    /// unless the positions of the other ranks say so.
    bool in_collective = false;
    /// The rank that a round waits for is not ended, only named. With `in_collective`.
    bool only_told = false;

    friend bool operator==(const Hang&, const Hang&) = default;
};

/// A worker's connection to another one broke in its round, though the worker itself lives.
struct BrokenLink {
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;  ///< The rank at the other end, which may be dead.
    std::string text;        ///< The predicate of a sentence about it: "closed the connection".

    friend bool operator==(const BrokenLink&, const BrokenLink&) = default;
};

/// The complete state of a node. Sent on every change that the daemon must know, and as heartbeat.
struct NodeReport {
    RoundId round = RoundId::none;  ///< The last round that the node took part in.
    NodeState state = NodeState::stopped;
    /// Port of the socket, already listening, on which the node would serve the next round's store.
    std::uint16_t store_port = 0;
    /// The first failure among the node's workers of `round`. Stays set for the rest of the round.
    std::optional<WorkerFailure> failure{};
    /// All its workers are elastic: they keep their processes from round to round.
    bool elastic = false;
    /// The highest committed step among its workers, over all rounds; 0: unknown.
    std::uint64_t step = 0;
    /// The highest committed step whose state a live worker process of the node has, whether it
    /// trains or is suspended; 0: there is none.
    std::uint64_t held_step = 0;
    /// The highest committed step of a worker of `round` that has ended since; 0: unknown.
    std::uint64_t ended_step = 0;
    /// While its round is being stopped: the longest time that its workers, which are in user code,
    /// may take to suspend, or a check of the node's health may take. Zero if that is no longer
    /// than `shutdown_timeout`.
    Duration at_work{};
    /// In a join: how long ago `round` ended on this node, or a worker lost a peer, whichever was
    /// first. Zero if neither happened, and in other messages.
    Duration ended_ago{};
    /// The node ended `round`, or will not begin it, because it can no longer serve that round's
    /// store.
    bool store_spent = false;
    /// Why the node is about to leave; empty: it does not want to. The other nodes continue without
    /// it after the next step boundary.
    std::string draining{};
    std::optional<Hang> hang{};  ///< In `round`, as long as it lasts.
    /// The positions of the workers of `round`. Sent after the daemon asked for stacks, once the
    /// stacks are saved.
    std::vector<RankPosition> positions{};
    /// The alarm that `positions` answer; 0: none.
    std::uint32_t alarm = 0;
    /// The first broken link of each worker in `round`.
    std::vector<BrokenLink> broken_links{};
    /// The ranks of this node that have ended with success in `round`.
    RankSet finished{};

    friend bool operator==(const NodeReport&, const NodeReport&) = default;
};

// ---- From the agent.

/// The first message on every connection, also after a reconnection.
struct Join {
    std::string job;
    NodeId node;
    JobPolicy policy;
    Offer offer;
    NodeReport report;
    /// How long ago the launcher of the node began.
    Duration began_ago{};
};
struct Report {
    NodeReport report;
    /// From the node with rank 0, if it has changed since the last one on this connection. For
    /// people and metrics: it is no part of the state of the node.
    std::optional<Telemetry> telemetry{};
    /// From the node of group rank 0, under the same rules.
    std::optional<SnapshotFacts> snapshots{};
    /// A window that has ended, if the workers tell their collectives. Under the same rules.
    std::optional<WorkWindow> work{};
};
/// The node leaves by itself; its workers are being ended.
struct Leave {
    std::string reason;
    /// Sent in place of a dead agent; counts as a loss.
    bool killed = false;
};
/// The first step of `round` is committed, with the durations that this node measured. Sent by the
/// node with rank 0.
struct Resumed {
    RoundId round = RoundId::none;
    std::uint64_t step = 0;
    Duration communicator{};  ///< From the assignment until the group was formed.
    Duration state{};         ///< Until every worker had the state.
    Duration first_step{};    ///< Until the first step was committed.
    /// The time between the commit and the sending of this message, which may have had to wait for
    /// a connection.
    Duration ago{};
};
/// A part of the output of a rank: the answer to ReadLog.
struct LogPart {
    std::uint64_t ticket = 0;  ///< Of the ReadLog.
    std::string file{};        ///< On this node.
    std::uint64_t offset = 0;  ///< Of the byte after `text` in the file.
    std::string text{};
    bool more = false;      ///< The file goes on.
    std::string trouble{};  ///< Why there is no text; empty: none.
};
/// An operator's request, in place of a Join. The daemon answers with Operated and closes the
/// connection. With `wait`, it answers a drain twice: when it accepts it, and when the nodes have
/// left. After logs, the operator may ask again.
struct Operate {
    enum class Action : std::uint8_t { drain, release, stop, logs };
    std::string job;  ///< Empty: the only job of the daemon.
    Action action = Action::logs;
    std::string node;    ///< For drain and release: the name of the node.
    std::string author;  ///< For the verdict: user and host.
    std::string reason;
    bool wait = false;
    LogWish log{};  ///< For logs.
};
[[nodiscard]] std::string_view to_string(Operate::Action action) noexcept;
/// The action is about one node, which `node` names.
[[nodiscard]] constexpr bool names_node(Operate::Action action) noexcept {
    return action == Operate::Action::drain || action == Operate::Action::release;
}
using FromAgent = std::variant<Join, Report, Leave, Resumed, LogPart, Operate>;

// ---- From the daemon.

/// The place of a node in a round. Its size does not depend on the world size.
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
    std::string store_key;            ///< Of the Offer of group rank 0.
    std::uint32_t restart_count = 0;  ///< Failures so far that led to a restart.
    /// The rank whose failure ended the round before, if a failure did.
    std::optional<std::uint32_t> failed_rank{};
    /// The launcher of a member runs the daemon: if no daemon is left, that member is lost.
    bool member_serves = false;
    Cause reason;  ///< Why this round exists.

    friend bool operator==(const Assignment&, const Assignment&) = default;
};
struct Assign {
    Assignment assignment;
    /// Wall-clock time of the daemon, in ms since 1970, in the first such message of a connection,
    /// for a warning about clocks; else 0. The core does not set it.
    std::int64_t now_ms = 0;
};
/// End the workers of `round` and report `stopped`.
struct Stop {
    RoundId round = RoundId::none;
    Cause reason{};
    /// Nothing has failed: workers that ask in each step whether to stop may end at a step on which
    /// all ranks agree.
    bool planned = false;
};
/// The round is to change without losing a step: workers suspend at the next step boundary, then
/// the node reports `stopped`. With `leave`, the workers of the node save their state there and
/// end; suspended workers do so at once.
struct Prepare {
    RoundId round = RoundId::none;
    bool leave = false;
    Cause reason{};
    /// With `leave`: the daemon believes that the workers train. If they have suspended meanwhile,
    /// the node first reports that, since the daemon's order depends on it.
    bool if_running = false;
    /// With `leave`: the suspended workers hold an old state. The others have continued, so it must
    /// not be saved.
    bool stale = false;
};
/// A round hangs: save the stacks of its workers before any worker is killed, and report
/// `positions`. Repeated until the node has answered this alarm.
struct SaveStacks {
    RoundId round = RoundId::none;
    std::uint32_t alarm = 0;  ///< Counted within `round`, from 1.
    HangCulprit reason{};
    bool positions_only = false;  ///< No stacks: it may be no hang.
};
/// The round hangs on this worker of the node: end the worker by force; its failure is a hang.
struct EndWorker {
    RoundId round = RoundId::none;
    std::uint32_t rank = 0;
    HangCulprit reason{};
    bool by_silence = false;  ///< See WorkerFailure.
};
/// An operator reads the output of a worker of this node. Answered by a LogPart.
struct ReadLog {
    std::uint64_t ticket = 0;
    LogWish wish{};
};
/// The daemon does not count this node as a member: end all workers, then join again.
struct Fenced {
    Cause reason = Cause::GivenUp{};
};
/// All workers of the node have finished `round`, and no other node needs this node: it may exit.
/// Group rank 0, whose agent serves the store, is needed until the job is closed.
struct Dismissed {
    RoundId round = RoundId::none;
};
/// Nothing to do. The daemon is alive, and `round` is its current round.
struct Alive {
    RoundId round = RoundId::none;
    /// For people: some ranks of the round finished a while ago, and others go on. Mostly unknown.
    PartialFinish partial_finish{};
};
/// Why the node has no assignment yet. The answer to each heartbeat of a waiting node.
struct Waiting {
    std::vector<std::string> joined;  ///< Names of the nodes that have joined.
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    bool standby = false;  ///< The round is full; this node waits for a place.
    /// No node of the last round ran the command of this node, and no standbys were asked for.
    bool other_command = false;
    /// The workers of this job are elastic: start the workers of this node ahead of the round.
    bool prestart = false;
    Situation detail{};
    std::int64_t now_ms = 0;  ///< See Assign.
};
/// This node may not take part in the job.
struct Refused {
    Errc code = Errc::invalid_argument;
    Refusal reason{};
};
enum class Outcome : std::uint8_t { succeeded, failed, stopped };
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

/// One recovery, or one planned change, and where the time went. A stage is zero if it did not
/// happen or could not be measured.
struct Incident {
    RoundId round = RoundId::none;       ///< The round that ended.
    RoundId next_round = RoundId::none;  ///< The round that followed.
    bool planned = false;                ///< Growth or a drain: nothing was lost.
    /// The next round ended before its first step, with the job or for a loss of its own: there was
    /// no recovery and no change. `first_step` is the time until that end; `step` is not set.
    bool cut_short = false;
    Cause cause{};
    Succession decision{};
    Duration detect{};  ///< From the first sign until the daemon decided that the round must end.
    Duration decide{};  ///< Waiting between the rounds: back-off, or nodes that may come back.
    Duration stop{};    ///< Until the last worker of the round had ended or was suspended.
    /// Until the next round was assigned, and until rank 0's process had entered it.
    Duration join{};
    Duration communicator{};  ///< Until its group was formed.
    Duration state{};         ///< Until every worker had the state.
    Duration first_step{};    ///< Until its first step was committed (or its workers ran).
    std::uint64_t step = 0;   ///< Its number; 0: its workers have no SDK, and only began to run.
    /// Steps that are done again, since no process kept their state: from `step` to the last step
    /// known to be committed.
    std::uint64_t lost_steps = 0;
    /// The daemon had ended too, and no process was left that knew the last step. `lost_steps` is a
    /// lower bound, and the times begin with the daemon's return.
    bool lost_at_least = false;

    /// The times end when the programs ran, and not when they trained.
    [[nodiscard]] bool until_start() const noexcept { return !cut_short && step == 0; }
    [[nodiscard]] Duration total() const noexcept {
        return detect + decide + stop + join + communicator + state + first_step;
    }
    friend bool operator==(const Incident&, const Incident&) = default;
};
/// Where the time of a job went, or of the observed part of it.
struct Goodput {
    Duration lasted{};              ///< Since the assignment of the first round.
    Duration lost{};                ///< The part of it that went to incidents.
    Duration lost_at_end{};         ///< Further loss: from the first sign of the job's end to it.
    std::uint32_t count = 0;        ///< Number of incidents.
    std::uint32_t planned = 0;      ///< Those that were planned: growth or a drain.
    std::uint32_t cut_short = 0;    ///< Those after which no first step came.
    std::uint32_t until_start = 0;  ///< Those after which the programs do not tell their steps.
    std::uint64_t lost_steps = 0;   ///< Committed steps that are done again, over all incidents.
    bool lost_at_least = false;     ///< `lost_steps` is a lower bound.

    void add(const Incident& incident) noexcept;
    friend bool operator==(const Goodput&, const Goodput&) = default;
};
/// A recovery is complete. One that was cut short is sent with the next complete one, or with the
/// end of the job. Sent to every member of the round.
struct Recovered {
    Incident incident;
};

/// A rank lets the others wait. Sent once to every member of the round, for people.
struct RankIsSlow {
    RoundId round = RoundId::none;
    SlowRank slow{};
    std::string node{};
};

/// How and why a job ended. Never changes once it is set.
struct Verdict {
    Outcome outcome = Outcome::stopped;
    JobEnding reason{};
    Author author{};
    int exit_code = 1;  ///< The exit code of every agent.
    std::uint32_t restarts = 0;
    std::optional<WorkerFailure> failure;  ///< The first failure of the last round.
    Goodput goodput;                       ///< Of the whole job.

    friend bool operator==(const Verdict&, const Verdict&) = default;
};
struct Closed {
    Verdict verdict;
    /// The node was no part of the job: it joined after the end, or it waited with another command
    /// than that of the job. A node that was in a round knows better.
    bool missed = false;
};
/// The answer to Operate.
struct Operated {
    bool done = false;
    std::string text;  ///< For people; for `logs`, a JSON object.
};
/// Another daemon is the leader; this one has no state. `endpoint` is the leader's, or empty.
struct Elsewhere {
    std::string endpoint;
};
using FromDaemon =
    std::variant<Assign, Stop, Prepare, SaveStacks, EndWorker, ReadLog, Fenced, Dismissed, Alive,
                 Waiting, Refused, Recovered, RankIsSlow, Closed, Operated, Elsewhere>;

}  // namespace regroup::rendezvous
