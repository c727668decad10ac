// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/link/telemetry_writer.h"

namespace regroup::elastic {

/// Divides the time of a step. `waited` is always the time that the thread has waited for
/// operations so far (WaitMeter).
///
///     open   begin_data   end_data          reach_commit       begin_apply   close
///      |---------|-----------|--------------------|------------------|-----------|
///       compute      data          compute              waiting         compute
///
/// Waits for operations up to reach_commit count as communication instead.
class StepClock {
   public:
    void open(Instant now, Duration waited) noexcept;
    /// The sections for data, any number of them. One that is open ends with reach_commit.
    void begin_data(Instant now, Duration waited) noexcept;
    void end_data(Instant now, Duration waited) noexcept;
    [[nodiscard]] bool is_in_data() const noexcept { return data_began_.has_value(); }
    /// This rank has nothing left to do but to apply the step.
    void reach_commit(Instant now, Duration waited) noexcept;
    /// All ranks have come there.
    void begin_apply(Instant now) noexcept;
    /// The step is committed.
    [[nodiscard]] link::StepTimes close(Instant now) noexcept;

   private:
    struct Mark {
        Instant at{};
        Duration waited{};

        /// The time since this mark, without waits.
        [[nodiscard]] Duration worked(const Mark& until) const noexcept {
            return (until.at - at) - (until.waited - waited);
        }
    };

    Mark opened_{};
    std::optional<Mark> data_began_{};
    link::StepTimes times_{};
    Instant reached_at_{};
    Instant apply_began_{};
};

}  // namespace regroup::elastic
