// SPDX-License-Identifier: Apache-2.0
//
// The events that an AgentCore gets, and the effects that it asks for.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/causes.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

using rendezvous::Assignment;
using rendezvous::RoundId;

// Events.

/// A connection to the daemon is open.
struct LinkUp {};
/// The connection broke, or could not be opened.
struct LinkDown {};
struct Received {
    rendezvous::FromDaemon message;
};
/// A worker has ended, or its end is certain: its status is known, and none of its threads runs.
/// The shell kills its process group. `failure` is empty if it exited with success.
struct WorkerExited {
    RoundId round = RoundId::none;  ///< The round of its launch; none: ahead of a round.
    std::uint32_t local_rank = 0;
    std::optional<WorkerFailure> failure;
    /// An elastic worker has said that its training is finished; one that `stops` has ended with
    /// success without having been told to stop.
    bool finished = false;
    /// For an elastic worker, or one that `stops`, that exited with success and had not finished:
    /// its end as a failure. It counts as one if nobody had asked it to end. Else empty.
    std::optional<WorkerFailure> unfinished{};
    std::uint64_t step = 0;  ///< The last step in its page, committed or received.
};
/// The worker's own process has ended, asked by the node or by a signal with which people and
/// schedulers ask a program to stop; what is left of its process group got that signal, too, and
/// has time to end in order. WorkerExited follows when nothing is left, and after SIGKILL.
struct WorkerEnding {
    RoundId round = RoundId::none;  ///< As in WorkerExited.
    std::uint32_t local_rank = 0;
    std::optional<WorkerFailure> failure{};  ///< Empty if it exited with success.
};
/// A worker has said Hello over its link. Without a Hello a worker is not elastic. A second Hello
/// without `elastic` means that its training is finished.
struct WorkerAttached {
    std::uint32_t local_rank = 0;
    bool elastic = false;  ///< It keeps its process when rounds change.
    /// The program can be started ahead of a round: the launched process itself has the SDK, not a
    /// process below it, which may get its rank from a command line.
    bool may_wait = false;
    /// It is not elastic, and asks in each step whether to stop.
    bool stops = false;
};
/// An elastic worker, or one that was started ahead, has left `round` (none: it was in no round)
/// and waits for the next one.
struct WorkerSuspended {
    std::uint32_t local_rank = 0;
    RoundId round = RoundId::none;
    bool at_boundary = false;  ///< As agreed with all ranks, not because peers are lost.
    std::uint64_t step = 0;    ///< Committed.
};
/// An elastic worker has committed the first step of a round. Has the times of the recovery stages.
struct WorkerResumed {
    std::uint32_t local_rank = 0;
    rendezvous::Resumed resumed;
};
/// A worker's connection to `peer`, a rank, broke in `round`. The worker lives.
struct WorkerLostPeer {
    std::uint32_t local_rank = 0;
    RoundId round = RoundId::none;
    std::uint32_t peer = 0;
    std::string text;  ///< The rest of a sentence about the peer.
};
/// The highest step in the pages of the live workers, committed or received; 0 if there is none.
/// The shell sends a change before any other event that may lead to a report.
struct StepsCommitted {
    std::uint64_t step = 0;
};
/// Workers of the round have made no progress for longer than their limit. Without `hang`: they
/// move again.
struct HangSuspected {
    RoundId round = RoundId::none;
    std::optional<rendezvous::Hang> hang{};
};
/// Workers that must suspend are in user code, and count as hung after `left`. Until then they are
/// not killed: the job may have no other copy of their state.
struct WorkersAtWork {
    RoundId round = RoundId::none;
    Duration left{};
};
/// The answer to SaveStacks.
struct StacksSaved {
    RoundId round = RoundId::none;
    std::vector<rendezvous::RankPosition> positions;
};
/// There is a new listening socket for the next round's store.
struct StoreOffered {
    std::uint16_t port = 0;
};
/// This process runs the daemon from now on, because nobody else did.
struct RendezvousServed {
    bool ends_with_daemon = false;  ///< See Offer.
};
/// The answer to CheckNode; or, before the first connection, the result of the check that the shell
/// makes by itself.
struct NodeChecked {
    std::string fault{};  ///< Why the node may not take part, one sentence; empty: it may.
};
/// A signal asks this node to leave. If its workers hold state, the node first asks the daemon when
/// to leave; else it leaves at once. A second signal makes it leave at once, and a third one ends
/// the grace period of the workers. Another signal soon after the first is an echo and is ignored:
/// timeout(1) signals its child and then the child's group, and systemd sends SIGHUP after SIGTERM.
/// SIGINT, from a person at a keyboard, is never an echo.
struct QuitRequested {
    int signal = 0;
    std::string words{};  ///< The text of the reason, which is sent to the daemon.
};
using AgentEvent = std::variant<LinkUp, LinkDown, Received, WorkerExited, WorkerEnding,
                                WorkerAttached, WorkerSuspended, WorkerResumed, WorkerLostPeer,
                                StepsCommitted, HangSuspected, WorkersAtWork, StacksSaved,
                                StoreOffered, RendezvousServed, NodeChecked, QuitRequested>;

// Effects, to be carried out in this order. Local ranks are in ascending order.

struct SendToDaemon {
    rendezvous::FromAgent message;
};
/// Send Leave to the daemon, with the text of the reason.
struct SendLeave {
    QuitReason reason;
};
/// The daemon has been silent for too long: close the connection and open another.
struct DropLink {};
/// A round begins on this node. Serve its store if this node has group rank 0. AssignWorkers and
/// LaunchWorkers follow.
struct BeginRound {
    Assignment assignment;
};
/// Start these workers. One that cannot be started is reported as WorkerExited.
struct LaunchWorkers {
    Assignment assignment;
    std::vector<std::uint32_t> local_ranks{};
};
/// Start these workers ahead of a round. AssignWorkers will follow.
struct PrestartWorkers {
    std::vector<std::uint32_t> local_ranks{};
};
/// Give these workers, which are suspended or were started ahead, their ranks in a round. A worker
/// that is not ready yet gets the message later.
struct AssignWorkers {
    Assignment assignment;
    std::vector<std::uint32_t> local_ranks{};
};
/// Rounds up to `round` are over for all workers of this node: write that into their pages. Tell
/// `local_ranks` to abandon the round and suspend.
struct EndRound {
    RoundId round = RoundId::none;
    std::vector<std::uint32_t> local_ranks{};
    Cause cause;
};
/// Tell the workers of `round` to suspend at the next step boundary; with `leave`, to save their
/// state there and end, within `limit`. If the round breaks before, they suspend. Workers that ask
/// in each step whether to stop end with success at a step on which all ranks agree.
struct PauseWorkers {
    RoundId round = RoundId::none;
    bool leave = false;
    Duration limit{};
    Cause cause;
    bool at_once = false;  ///< With `leave`: suspended workers save at once.
};
struct SignalWorkers {
    RoundId round = RoundId::none;
    int signal = 0;        ///< SIGTERM, the signal that the node got, or SIGKILL.
    bool hurried = false;  ///< SIGKILL comes from a second request, not from the time limit.
    std::vector<std::uint32_t> local_ranks{};
    bool waiting = false;  ///< They wait for a round; SIGKILL at once loses nothing.

    [[nodiscard]] bool force() const noexcept { return signal == SIGKILL; }
};
/// Save the stacks of all workers before anything is killed; StacksSaved is the answer.
struct SaveStacks {
    RoundId round = RoundId::none;
    rendezvous::HangCulprit reason{};
    bool positions_only = false;  ///< Save no stacks.
};
/// A worker has failed: check the health of this node. NodeChecked is the answer; until then the
/// node takes part in no round.
struct CheckNode {
    /// The node has waited for a place for a while, and no worker has failed: only a fault needs an
    /// answer.
    bool waits = false;
};
/// Print that the round is not over because of workers in user code, for which the agent waits at
/// most `left` more.
struct TellAtWork {
    RoundId round = RoundId::none;
    Duration left{};
};
/// The round hung on this worker: kill it.
struct KillWorker {
    std::uint32_t local_rank = 0;
    rendezvous::HangCulprit reason{};
    bool by_silence = false;  ///< See WorkerFailure.
};
/// Print the recovery. With `keep`, write it to the ledger of the run: this node has group rank 0.
struct TellRecovery {
    rendezvous::Incident incident;
    bool keep = false;
};
/// The agent is done: end with `exit_code`, or by `signal` if that is not 0.
struct Quit {
    int exit_code = 0;
    int signal = 0;
    QuitReason reason;
    std::optional<rendezvous::Verdict> verdict{};  ///< The verdict of the job, if it was closed.
};
using AgentEffect =
    std::variant<SendToDaemon, SendLeave, DropLink, BeginRound, LaunchWorkers, PrestartWorkers,
                 AssignWorkers, EndRound, PauseWorkers, SignalWorkers, SaveStacks, CheckNode,
                 TellAtWork, KillWorker, TellRecovery, Quit>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace regroup::agent
