// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/worker_link/page.h"

namespace regroup::link {

/// Where the time of one step went. The sum is the length of the step.
struct StepTimes {
    Duration data{};           ///< In the sections for data.
    Duration compute{};        ///< The rest.
    Duration communication{};  ///< The thread waited for operations.
    Duration waiting{};        ///< At the end of the step, until all ranks had come there.
};

/// Writes what this worker measures into the page that its agent reads; without an agent, into
/// memory of its own. Used by the thread of the loop. No call allocates, locks or enters the
/// kernel.
class TelemetryWriter {
   public:
    explicit TelemetryWriter(worker_link::WorkerPage* page) noexcept
        : block_(page != nullptr ? page->telemetry : own_) {}
    TelemetryWriter(const TelemetryWriter&) = delete;
    TelemetryWriter& operator=(const TelemetryWriter&) = delete;

    /// Counts a committed step. `samples`: of all ranks together.
    void count_step(const StepTimes& times, std::uint64_t samples) noexcept;

    /// Sets the value `name`, which must be a value name. False if there are kReportedValuesMax
    /// others already.
    [[nodiscard]] bool set_value(std::string_view name, double value) noexcept;

    [[nodiscard]] const worker_link::TelemetryBlock& block() const noexcept { return block_; }

   private:
    worker_link::TelemetryBlock own_{};
    worker_link::TelemetryBlock& block_;
};

}  // namespace regroup::link
