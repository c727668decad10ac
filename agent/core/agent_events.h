// SPDX-License-Identifier: Apache-2.0
//
// What an AgentCore is told, and what it wants done.
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

// Events: what happened outside.

/// A connection to the daemon is open.
struct LinkUp {};
/// It broke, or could not be opened.
struct LinkDown {};
struct Received {
    rendezvous::FromDaemon message;
};
/// A worker is gone, or its end is certain: with its status known, and nothing of it running. The
/// shell sees to its whole process group. `failure` is empty if it exited with success.
struct WorkerExited {
    RoundId round = RoundId::none;  ///< In which it was launched; none: ahead of a round.
    std::uint32_t local_rank = 0;
    std::optional<WorkerFailure> failure;
    bool finished = false;  ///< It had said that the training is, which an elastic worker does.
    /// Of one that exited with success and had not finished: its end as a failure, which it is if
    /// it was in the middle of its training. Or empty.
    std::optional<WorkerFailure> unfinished{};
    std::uint64_t step = 0;  ///< That it had committed or was given, as its page says.
};
/// A worker has said Hello over its link. One that never does is not elastic, nor is one that has
/// said again that it is not: its training is finished.
struct WorkerAttached {
    std::uint32_t local_rank = 0;
    bool elastic = false;  ///< It keeps its process when rounds change.
    /// Another process like it could be started ahead of a round: the program that was launched has
    /// the SDK itself, and not one below it, which may get its rank from a command line.
    bool may_wait = false;
};
/// A elastic worker, or one that was started ahead, has left `round` (none: it has not been in
/// any) and waits for the next one.
struct WorkerSuspended {
    std::uint32_t local_rank = 0;
    RoundId round = RoundId::none;
    bool at_boundary = false;  ///< As agreed with all ranks, and not because peers are gone.
    std::uint64_t step = 0;    ///< Committed.
};
/// A elastic worker has committed the first step of a round, and what the way there took.
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
/// The highest step that the workers alive have committed or were given, as their pages say; 0 if
/// none has. The shell tells of a change before anything else that may lead to a report.
struct StepsCommitted {
    std::uint64_t step = 0;
};
/// Workers of the round have made no progress for longer than they may; or, without `hang`, they
/// move again.
struct HangSuspected {
    RoundId round = RoundId::none;
    std::optional<rendezvous::Hang> hang{};
};
/// Workers that are to suspend are in user code, and for at most `left` more they may be before
/// they count as hung. Until then they are not ended by force: their state may be all that the job
/// has.
struct WorkersAtWork {
    RoundId round = RoundId::none;
    Duration left{};
};
/// What SaveStacks asked for is done.
struct StacksSaved {
    RoundId round = RoundId::none;
    std::vector<rendezvous::RankPosition> positions;
};
/// There is a new listening socket for the next round's store.
struct StoreOffered {
    std::uint16_t port = 0;
};
/// A signal asks this node to leave. If its workers hold state, the node first waits for the daemon
/// to say when; else it leaves at once. A second signal turns the wait into leaving at once, and a
/// third one ends the workers' grace. A signal soon after the first is an echo and counts for
/// nothing: timeout(1) signals its child and then the child's group, and systemd sends SIGHUP after
/// SIGTERM. A person at a keyboard (SIGINT) is quicker than that.
struct QuitRequested {
    int signal = 0;
    std::string words{};  ///< The same for people; the daemon is told them.
};
using AgentEvent =
    std::variant<LinkUp, LinkDown, Received, WorkerExited, WorkerAttached, WorkerSuspended,
                 WorkerResumed, WorkerLostPeer, StepsCommitted, HangSuspected, WorkersAtWork,
                 StacksSaved, StoreOffered, QuitRequested>;

// Effects: what the shell must now do, in this order. Workers are named by their local ranks, in
// ascending order.

struct SendToDaemon {
    rendezvous::FromAgent message;
};
/// Say Leave to the daemon, with the reason in words.
struct SendLeave {
    QuitReason reason;
};
/// The daemon has been silent for too long: close the connection and open another.
struct DropLink {};
/// A round begins here. Serve its store, if this node has group rank 0; then give places to the
/// workers that are suspended or idle, and start a process for each of the others.
struct BeginRound {
    Assignment assignment;
};
/// Start these workers. One that cannot be started is reported as WorkerExited.
struct LaunchWorkers {
    Assignment assignment;
    std::vector<std::uint32_t> local_ranks{};
};
/// Start these workers ahead of a round, of which they will be told by AssignWorkers.
struct PrestartWorkers {
    std::vector<std::uint32_t> local_ranks{};
};
/// Tell these, which are suspended or were started ahead, their places in a round. One that is not
/// ready yet is told when it is.
struct AssignWorkers {
    Assignment assignment;
    std::vector<std::uint32_t> local_ranks{};
};
/// Rounds up to `round` are over for all workers here (their pages say so from now on). These
/// workers are to abandon it and suspend.
struct EndRound {
    RoundId round = RoundId::none;
    std::vector<std::uint32_t> local_ranks{};
    Cause cause;
};
/// The workers of `round` are to suspend at the next step boundary; with `leave`, to save their
/// state there and end, within `limit`. If the round breaks before, they suspend.
struct PauseWorkers {
    RoundId round = RoundId::none;
    bool leave = false;
    Duration limit{};
    Cause cause;
    bool at_once = false;  ///< With `leave`: those that are suspended, or will be, save at once.
};
struct SignalWorkers {
    RoundId round = RoundId::none;
    int signal = 0;        ///< SIGTERM, what the node itself was asked to end with, or SIGKILL.
    bool hurried = false;  ///< Forced because it was asked for again, not because of the time.
    std::vector<std::uint32_t> local_ranks{};
    bool waiting = false;  ///< They train nothing; forced at once, for nothing is lost.

    [[nodiscard]] bool force() const noexcept { return signal == SIGKILL; }
};
/// Save the stacks of all workers before anything is killed; StacksSaved is the answer.
struct SaveStacks {
    RoundId round = RoundId::none;
    std::string reason;
};
/// For people: the round would have been over by now, but for workers in user code, for which the
/// agent waits at most `left` more.
struct TellAtWork {
    RoundId round = RoundId::none;
    Duration left{};
};
/// The round hung on this worker: end it by force.
struct KillWorker {
    std::uint32_t local_rank = 0;
    rendezvous::HangCulprit reason{};
    bool by_silence = false;  ///< See WorkerFailure.
};
/// For people, and with `keep` for the run's ledger, which the node with group rank 0 writes.
struct TellRecovery {
    rendezvous::Incident incident;
    bool keep = false;
};
/// The agent is done: end with `exit_code`, or by `signal` if that is not 0.
struct Quit {
    int exit_code = 0;
    int signal = 0;
    QuitReason reason;
    std::optional<rendezvous::Verdict> verdict{};  ///< The job's, when it was closed.
};
using AgentEffect =
    std::variant<SendToDaemon, SendLeave, DropLink, BeginRound, LaunchWorkers, PrestartWorkers,
                 AssignWorkers, EndRound, PauseWorkers, SignalWorkers, SaveStacks, TellAtWork,
                 KillWorker, TellRecovery, Quit>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace regroup::agent
