// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "agent/workers/live_worker.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The content of `block` now; nothing before the first step. A worker can write anything into its
/// page: the result is always one that the daemon accepts.
[[nodiscard]] std::optional<rendezvous::Telemetry> read_telemetry(
    const worker_link::TelemetryBlock& block, std::uint32_t pid);

/// Finds the page of rank 0, and what is new in it. Keeps the page of a process that has ended, for
/// its last steps.
class TelemetrySource {
   public:
    /// For a report about `round`. Nothing if no worker of this node has rank 0 there, or if
    /// nothing has changed since the last call.
    [[nodiscard]] std::optional<rendezvous::Telemetry> news(rendezvous::RoundId round,
                                                            std::span<const LiveWorker> workers);
    /// The connection is new: what was sent may be lost.
    void forget_sent() { sent_.reset(); }

   private:
    std::shared_ptr<SharedPage> page_;  ///< May be null.
    std::uint32_t pid_ = 0;
    rendezvous::RoundId round_ = rendezvous::RoundId::none;
    std::optional<rendezvous::Telemetry> sent_;
};

}  // namespace regroup::agent
