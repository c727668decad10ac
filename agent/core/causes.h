// SPDX-License-Identifier: Apache-2.0
//
// The causes of what an AgentCore does, as values. agent/text/cause_text.h has their texts.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/cause.h"
#include "rendezvous/core/situation.h"

namespace regroup::agent {

/// The daemon asked for it, for its own reason.
struct ToldByDaemon {
    std::variant<rendezvous::Cause, rendezvous::JobEnding, rendezvous::Refusal> reason;
};
/// A signal asked this node to leave.
struct AskedBySignal {
    int signal = 0;
};
/// The health check of this node found a part that does not work.
struct Unhealthy {
    std::string fault;  ///< One sentence without its full stop.
};
/// A worker left its round before a step boundary because it had lost its peers.
struct PeersUnreachable {};
/// The node leaves, and the time of its workers to reach a step boundary is over.
struct BoundaryMissed {};

using rendezvous::WorkerFailure;

using Cause = std::variant<ToldByDaemon, AskedBySignal, Unhealthy, PeersUnreachable, BoundaryMissed,
                           WorkerFailure>;

/// The reason for the end of an agent.
enum class QuitCause : std::uint8_t {
    job_closed,     ///< The verdict has the reason.
    missed,         ///< The job is closed, and this node was no part of it; see Closed.
    refused,        ///< By the daemon; `why` has the reason.
    no_round,       ///< No round was formed within `limit`.
    no_rendezvous,  ///< No daemon was reached within `limit`.
    asked,          ///< Asked by a signal; the node left at once.
    unhealthy,      ///< `why` has the fault of this node.
    finished,       ///< All workers here have finished, and the node is not needed or had to leave.
    drained,        ///< The node had to leave; its state is saved or not needed.
    save_timeout,   ///< The node had to leave; its state was not saved within `limit`.
    save_failed,    ///< The node had to leave; a worker failed to save its state.
    ended_unsaved,  ///< The node had to leave; its workers failed before they saved.
    workers_unkillable,  ///< `workers` workers survive SIGKILL.
};

struct QuitReason {
    QuitCause cause = QuitCause::job_closed;
    Cause why{};       ///< The cause of a leave or a refusal.
    Duration limit{};  ///< The time limit of the flag.
    std::uint32_t workers = 0;
    bool succeeded = false;  ///< All workers here had succeeded. `alone`: the job has no others.
    bool alone = false;
};

}  // namespace regroup::agent
