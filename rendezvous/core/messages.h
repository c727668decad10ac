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

namespace regroup::rendezvous {

/// Names one agent process for its life; a restarted agent is a new node id. Chosen by the agent.
using NodeId = std::string;

/// One agreed membership. Strictly rising within a job; never repeated.
enum class RoundId : std::uint64_t { none = 0 };

[[nodiscard]] constexpr std::uint64_t number(RoundId round) noexcept {
    return static_cast<std::uint64_t>(round);
}
[[nodiscard]] constexpr RoundId next(RoundId round) noexcept {
    return static_cast<RoundId>(number(round) + 1);
}

/// What all members of a job must agree on. A node whose policy differs is refused when it joins.
struct JobPolicy {
    /// Fewest nodes that may form a round. At least 1.
    std::uint32_t nodes_min = 1;
    /// Most nodes in a round; further ones wait as spares. At least `nodes_min`.
    std::uint32_t nodes_max = 1;
    /// Worker failures that the job survives; the next one closes it. Lost nodes and growth are
    /// free.
    std::uint32_t restarts_max = 0;
    /// How long the door stays open once `nodes_min` have joined a first round. Zero closes at
    /// once.
    Duration last_call = std::chrono::seconds(3);
    /// A node silent for this long is lost. Agents report three times as often.
    Duration heartbeat_timeout = std::chrono::seconds(3);
    /// From asking workers to stop (SIGTERM) to forcing them (SIGKILL).
    Duration shutdown_timeout = std::chrono::seconds(30);
    /// A running round is stopped to let waiting nodes in only once it is this old.
    Duration grow_after = std::chrono::seconds(5);
    /// Base name of the program that the workers run.
    std::string program;

    friend bool operator==(const JobPolicy&, const JobPolicy&) = default;
};

/// Checks the relations between the fields; the error names those that disagree.
Result<void> validate(const JobPolicy& policy);

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
};

/// How one worker ended that was not asked to.
struct WorkerFailure {
    std::uint32_t rank = 0;
    std::uint32_t local_rank = 0;
    std::string node;  ///< The node's name.
    std::string host;
    std::int64_t pid = 0;
    /// Exit code, when it exited by itself; -1 otherwise.
    int exit_code = -1;
    /// Signal number, when a signal ended it; 0 otherwise.
    int signal = 0;
    bool core_dumped = false;
    /// Why it could not be started, when it could not; else empty.
    std::string start_error;
    /// Wall-clock time on the node, for display only: "2026-11-21 10:05:26".
    std::string time;
    /// Its last lines on stderr; its file on the node, or empty.
    std::string last_output;
    std::string log_file;
    /// What else explains the end, in a sentence: that the kernel was out of memory. Or empty.
    std::string evidence;
    /// What the worker itself said of its error: the message or traceback, shortened, and the file
    /// on the node that has all of it. Empty when it said nothing.
    std::string error_message;
    std::string error_file;

    friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

/// "rank 5 on b ended by SIGSEGV", "rank 0 on a exited with code 3", "rank 1 on a could not start".
[[nodiscard]] std::string describe(const WorkerFailure& failure);
/// True if `a` rather than `b` began it, whichever was reported first: a process that is killed or
/// crashes takes its peers with it, and they end with an error or abort. Reports of one event come
/// from several nodes and may overtake each other.
[[nodiscard]] bool outranks(const WorkerFailure& a, const WorkerFailure& b) noexcept;
/// What a shell would show for it: the exit code, 128 + signal, or 127 when it could not start.
[[nodiscard]] int shell_exit_code(const WorkerFailure& failure) noexcept;
/// "SIGSEGV", or "signal 77" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

enum class NodeState : std::uint8_t {
    stopped,   ///< No worker of any round is alive; ready for the next round.
    running,   ///< Workers of `NodeReport::round` are alive and wanted.
    stopping,  ///< Workers of `NodeReport::round` are being ended.
    finished,  ///< All workers of `NodeReport::round` ended with success.
};
[[nodiscard]] std::string_view to_string(NodeState state) noexcept;

/// The whole truth about a node. Sent on every change that the daemon must know, and as heartbeat.
struct NodeReport {
    RoundId round = RoundId::none;  ///< The last round that the node took part in.
    NodeState state = NodeState::stopped;
    /// Port of the socket, already listening, on which the node would serve the next round's store.
    std::uint16_t store_port = 0;
    /// The first failure among the node's workers of `round`, from then on.
    std::optional<WorkerFailure> failure;
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
};
using FromAgent = std::variant<Join, Report, Leave>;

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
    std::string reason;               ///< Why this round exists, for people.

    friend bool operator==(const Assignment&, const Assignment&) = default;
};
struct Assign {
    Assignment assignment;
};
/// End the workers of `round` and report `stopped`.
struct Stop {
    RoundId round = RoundId::none;
    std::string reason;
};
/// The daemon does not count this node as a member: end all workers, then join again.
struct Fenced {
    std::string reason;
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
/// Why the node has no assignment yet, at a backing-off rate.
struct Waiting {
    std::vector<std::string> joined;  ///< Names of the nodes that are there.
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    bool spare = false;  ///< The round is full; this node waits for a place.
    std::string detail;  ///< One sentence.
};
/// This node cannot take part, now or ever; `failure` names the other node and the field.
struct Refused {
    Errc code = Errc::invalid_argument;
    std::string reason;
};
enum class Outcome : std::uint8_t { succeeded, failed, stopped };
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

/// How and why a job ended. Never changes once given.
struct Verdict {
    Outcome outcome = Outcome::stopped;
    std::string reason;
    std::string author;
    int exit_code = 1;  ///< What every agent exits with.
    std::uint32_t restarts = 0;
    std::optional<WorkerFailure> failure;  ///< The first one of the last round.

    friend bool operator==(const Verdict&, const Verdict&) = default;
};
struct Closed {
    Verdict verdict;
};
using FromDaemon = std::variant<Assign, Stop, Fenced, Dismissed, Alive, Waiting, Refused, Closed>;

}  // namespace regroup::rendezvous
