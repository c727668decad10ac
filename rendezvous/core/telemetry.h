// SPDX-License-Identifier: Apache-2.0
//
// The steps of a training program and the work of its ranks, as they measure them. Nothing is
// decided by it. It goes past the core and the journal, to the views; only what is found, such as a
// slow rank, is kept there for people.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::rendezvous {

/// Sums over committed steps. The four times of a step add up to its length, from its begin until
/// it was committed. Steps that were lost and repeated are counted once.
struct StepCounters {
    std::uint64_t steps = 0;
    std::uint64_t samples = 0;  ///< Of all ranks together, as far as the program takes samples.
    Duration data{};            ///< In sections called "data".
    Duration compute{};         ///< The rest.
    Duration communication{};   ///< The thread of the loop waited for collectives and messages.
    Duration waiting{};         ///< At the end of the step, until all ranks had come there.

    /// Adds what has come since `before`: all of `now` if any number in it is smaller, since then
    /// another process counts. The times stop at kTimeMax.
    void add(const StepCounters& now, const StepCounters& before) noexcept;

    static constexpr Duration kTimeMax = std::chrono::hours(24 * 365 * 100);

    friend bool operator==(const StepCounters&, const StepCounters&) = default;
};

/// A number that the program reports, such as its loss.
struct ReportedValue {
    std::string name;  ///< See is_value_name.
    double value = 0;  ///< Finite.

    friend bool operator==(const ReportedValue&, const ReportedValue&) = default;
};

/// A rank whose own work, outside of collectives, takes longer than that of the others.
struct SlowRank {
    std::uint32_t rank = 0;
    double excess = 0;  ///< 0.2: 20 % longer than the median of the others. At least 0; finite.

    friend bool operator==(const SlowRank&, const SlowRank&) = default;
};

struct WorkTime {
    Duration time{};

    friend bool operator==(const WorkTime&, const WorkTime&) = default;
};
/// The time that each worker of a node spent outside of collectives, in one window of a round. The
/// windows of all nodes begin with the round, and have the same length.
struct WorkWindow {
    std::uint64_t number = 0;  ///< From 1.
    std::uint32_t world_size = 0;
    std::uint32_t first_rank = 0;
    std::vector<WorkTime> work{};  ///< By local rank.

    friend bool operator==(const WorkWindow&, const WorkWindow&) = default;
};
inline constexpr Duration kWorkWindow = std::chrono::seconds(15);

/// The measurements of rank 0's process since it began, in steps in which it had rank 0. Only
/// programs with an ElasticLoop measure.
struct Telemetry {
    std::uint32_t pid = 0;                ///< On its node: another process counts from zero.
    StepCounters counters{};              ///< At least one step.
    std::vector<ReportedValue> values{};  ///< The last ones; kReportedValuesMax at most.

    friend bool operator==(const Telemetry&, const Telemetry&) = default;
};

/// The snapshots of a job, as the agent of group rank 0 knows them; of the state that was saved
/// last, if the program keeps several.
struct SnapshotFacts {
    std::uint64_t step = 0;  ///< The newest that every rank has saved.
    /// The newest that no loss of one node takes away, if there are others: each part has a copy.
    std::optional<std::uint64_t> kept_step{};
    /// The newest of which the node has written its parts to the folder.
    std::optional<std::uint64_t> written_step{};
    std::uint64_t bytes = 0;  ///< Memory of the node for snapshots.

    friend bool operator==(const SnapshotFacts&, const SnapshotFacts&) = default;
};

inline void StepCounters::add(const StepCounters& now, const StepCounters& before) noexcept {
    constexpr Duration StepCounters::* kTimes[] = {&StepCounters::data, &StepCounters::compute,
                                                   &StepCounters::communication,
                                                   &StepCounters::waiting};
    const bool goes_on =
        now.steps >= before.steps && now.samples >= before.samples &&
        std::ranges::all_of(kTimes, [&](auto time) { return now.*time >= before.*time; });
    const StepCounters from = goes_on ? before : StepCounters();
    steps += now.steps - from.steps;
    samples += now.samples - from.samples;
    for (const auto time : kTimes) {
        this->*time = std::min(this->*time + (now.*time - from.*time), kTimeMax);
    }
}

}  // namespace regroup::rendezvous
