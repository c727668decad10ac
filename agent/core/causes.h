// SPDX-License-Identifier: Apache-2.0
//
// Why an AgentCore does what it does, as values. agent/cause_text.h puts them into words.
#pragma once

#include <cstdint>
#include <variant>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/cause.h"
#include "rendezvous/core/situation.h"

namespace regroup::agent {

/// The daemon wants it so, for its own reason.
struct ToldByDaemon {
    std::variant<rendezvous::Cause, rendezvous::Ending, rendezvous::Refusal> reason;
};
/// A signal asked this node to leave.
struct AskedBySignal {
    int signal = 0;
};
/// A worker left its round before a step boundary: it had lost its peers.
struct PeersUnreachable {};
/// The node is leaving, and its workers have no more time to come to a step boundary.
struct BoundaryMissed {};

using rendezvous::WorkerFailure;

using Cause =
    std::variant<ToldByDaemon, AskedBySignal, PeersUnreachable, BoundaryMissed, WorkerFailure>;

/// The end of an agent.
enum class QuitCause : std::uint8_t {
    job_closed,          ///< The verdict says why.
    refused,             ///< By the rendezvous; `why` says what for.
    no_round,            ///< None was formed within `limit`.
    no_rendezvous,       ///< None was reached within `limit`.
    asked,               ///< By a signal, at once.
    finished,            ///< All workers here have; nobody needs the node, or it was to leave.
    drained,             ///< The node was to leave, and its state is saved or not needed.
    save_timeout,        ///< It was to leave, and its state was not saved within `limit`.
    save_failed,         ///< It was to leave, and a worker failed as it saved its state.
    ended_unsaved,       ///< It was to leave, and its workers failed before they saved any state.
    workers_unkillable,  ///< `workers` of them live on after SIGKILL.
};

struct QuitReason {
    QuitCause cause = QuitCause::job_closed;
    Cause why{};       ///< Of a leave or a refusal: who wanted it.
    Duration limit{};  ///< Of a flag.
    std::uint32_t workers = 0;
    bool succeeded = false;  ///< All workers here had, by then; `alone`: and there are no others.
    bool alone = false;
};

}  // namespace regroup::agent
