// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "worker_sdk/src/link/agent_link.h"
#include "worker_sdk/src/link/progress_reporter.h"
#include "worker_sdk/src/link/telemetry_writer.h"

namespace regroup::elastic {

/// The agent of this worker. Without an agent, no round ends early, and nobody reads what the
/// worker says.
struct OptionalAgent {
    explicit OptionalAgent(std::shared_ptr<link::AgentLink> link_in)
        : link(std::move(link_in)),
          reporter(link ? &link->page() : nullptr),
          telemetry(link ? &link->page() : nullptr) {}

    void send(const link::FromWorker& message) const noexcept {
        if (link) {
            link->send(message);
        }
    }
    [[nodiscard]] bool ended(std::uint64_t round) const noexcept {
        return link && link->ended(round);
    }
    /// Whether the worker is to suspend at a step boundary of `round`.
    [[nodiscard]] bool pause_wanted(std::uint64_t round) const noexcept {
        return link && link->pause_wanted(round);
    }
    /// Whether this node must leave at that boundary.
    [[nodiscard]] bool leave_wanted(std::uint64_t round) const noexcept {
        return pause_wanted(round) && link->leaving();
    }

    const std::shared_ptr<link::AgentLink> link;
    link::ProgressReporter reporter;
    link::TelemetryWriter telemetry;
};

}  // namespace regroup::elastic
