// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "rendezvous/core/telemetry.h"

namespace regroup::rendezvous {

/// What a daemon has heard about the training of a job, from the nodes that had rank 0. It begins
/// anew with the daemon. Pure.
class JobTelemetry {
   public:
    /// `node` has sent `telemetry`; `at` is on the job's timeline and does not decrease.
    void hear(const std::string& node, Telemetry telemetry, Instant at);

    /// Empty: nothing was heard, perhaps because the program has no ElasticLoop.
    [[nodiscard]] const std::optional<Telemetry>& last() const noexcept { return last_; }
    /// When that came.
    [[nodiscard]] Instant heard_at() const noexcept { return heard_at_; }
    /// Added up over all processes that have had rank 0; never decreases.
    [[nodiscard]] const StepCounters& total() const noexcept { return total_; }
    /// The last growth of `total`, in `recent_time`: samples per second are their quotient. Zero
    /// before the second message with new steps.
    [[nodiscard]] const StepCounters& recent() const noexcept { return recent_; }
    [[nodiscard]] Duration recent_time() const noexcept { return recent_time_; }

   private:
    std::string node_;
    std::optional<Telemetry> last_;
    Instant heard_at_{};
    StepCounters total_;
    StepCounters recent_;
    Duration recent_time_{};
    Instant grown_at_{};
};

inline void JobTelemetry::hear(const std::string& node, Telemetry telemetry, Instant at) {
    const bool goes_on = last_ && node == node_ && telemetry.pid == last_->pid;
    StepCounters growth;
    growth.add(telemetry.counters, goes_on ? last_->counters : StepCounters());
    total_.add(growth, {});
    if (growth.steps > 0) {
        // The first message covers an unknown time.
        recent_ = last_ ? growth : StepCounters();
        recent_time_ = last_ ? at - grown_at_ : Duration::zero();
        grown_at_ = at;
    }
    node_ = node;
    last_ = std::move(telemetry);
    heard_at_ = at;
}

}  // namespace regroup::rendezvous
