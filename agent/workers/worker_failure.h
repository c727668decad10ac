// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "agent/process/exit_status.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The worker's own report of its end, over its link.
struct OwnReport {
    rendezvous::FailureKind kind = rendezvous::FailureKind::failure;
    std::string text;
    bool announced = false;  ///< It came before the worker was asked to end.
};

/// Why the agent killed a worker on which the round hung.
struct HangKill {
    std::string reason;
    bool by_silence = false;  ///< See WorkerFailure.
};

/// The facts that this node knows about the end of a worker that failed.
struct FailureFacts {
    ExitStatus status;
    std::optional<OwnReport> own_report{};
    std::optional<HangKill> hang{};
    rendezvous::PeerError peer_error = rendezvous::PeerError::none;  ///< In its page.
    std::string oom_evidence{};
};

/// The failure of a worker. `known` has its place, its time, its output and its error file.
[[nodiscard]] rendezvous::WorkerFailure failure_of(rendezvous::WorkerFailure known,
                                                   const FailureFacts& facts);

}  // namespace regroup::agent
