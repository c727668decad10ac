// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/telemetry.h"

namespace regroup::rendezvous {

/// The training of a job, as a daemon has heard of it from the nodes that had rank 0. It begins
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
    /// A process that has had rank 0, which may have it again.
    struct Process {
        std::string node;
        std::uint32_t pid = 0;
        StepCounters told{};
    };
    static constexpr std::size_t kProcessesMax = 64;

    StepCounters& told_by(const std::string& node, std::uint32_t pid);

    std::vector<Process> processes_;  ///< The last one that spoke is at the end.
    std::optional<Telemetry> last_;
    Instant heard_at_{};
    StepCounters total_;
    StepCounters recent_;
    Duration recent_time_{};
    Instant grown_at_{};
};

/// The snapshots of a job, as a daemon has heard of them. Begins anew with the daemon. Pure.
class JobSnapshots {
   public:
    /// `at` is on the job's timeline.
    void hear(SnapshotFacts facts, Instant at) {
        if (!last_ || last_->step != facts.step) {
            since_ = at;
        }
        last_ = facts;
    }
    /// Empty: nothing was heard, perhaps because the program keeps none.
    [[nodiscard]] const std::optional<SnapshotFacts>& last() const noexcept { return last_; }
    /// When its step was heard of first.
    [[nodiscard]] Instant since() const noexcept { return since_; }

   private:
    std::optional<SnapshotFacts> last_;
    Instant since_{};
};

inline StepCounters& JobTelemetry::told_by(const std::string& node, std::uint32_t pid) {
    const auto found = std::ranges::find_if(processes_, [&](const Process& process) {
        return process.node == node && process.pid == pid;
    });
    if (found != processes_.end()) {
        std::rotate(found, found + 1, processes_.end());
    } else {
        if (processes_.size() == kProcessesMax) {
            processes_.erase(processes_.begin());
        }
        processes_.push_back({node, pid});
    }
    return processes_.back().told;
}

inline void JobTelemetry::hear(const std::string& node, Telemetry telemetry, Instant at) {
    StepCounters& told = told_by(node, telemetry.pid);
    StepCounters growth;
    growth.add(telemetry.counters, std::exchange(told, telemetry.counters));
    total_.add(growth, {});
    if (growth.steps > 0) {
        // The first message covers an unknown time.
        recent_ = last_ ? growth : StepCounters();
        recent_time_ = last_ ? at - grown_at_ : Duration::zero();
        grown_at_ = at;
    }
    last_ = std::move(telemetry);
    heard_at_ = at;
}

}  // namespace regroup::rendezvous
