// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The uses of a job's time.
enum class JobState : std::uint8_t {
    waiting,     ///< Before its first round trained.
    productive,  ///< In steps that were committed and kept.
    recovering,  ///< From the last committed step before a failure until the next round trained.
    planned,     ///< From the step boundary of a planned change until the next round trained.
    lost,        ///< In steps that had been committed before and are done again.
};
inline constexpr std::size_t kJobStates = 5;
[[nodiscard]] std::string_view to_string(JobState state) noexcept;

/// Why a round ended, in one word; for counters.
enum class CauseWord : std::uint8_t {
    failure,    ///< A worker failed.
    hang,       ///< A worker hung.
    node_lost,  ///< A node was lost.
    network,    ///< A connection between two living workers broke.
    joined,     ///< Nodes were admitted.
    drained,    ///< Nodes left on request.
    other,
};
inline constexpr std::size_t kCauseWords = 7;
[[nodiscard]] std::string_view to_string(CauseWord word) noexcept;
[[nodiscard]] CauseWord cause_word(const Cause& cause) noexcept;

/// A stage of a recovery, in the order of `Incident`.
inline constexpr std::array<std::string_view, 8> kStageNames{
    "detect", "decide", "stop", "join", "communicator", "state", "first_step", "total"};
/// The durations of an incident, by kStageNames.
[[nodiscard]] std::array<Duration, kStageNames.size()> stages(const Incident& incident) noexcept;

/// Counts durations in buckets. Not cumulative.
struct Histogram {
    /// Upper limits in seconds: recoveries take from milliseconds to half an hour.
    static constexpr std::array<double, 15> kLimits{.005, .01, .025, .05, .1, .25, .5,  1,
                                                    2.5,  5,   10,   30,  60, 300, 1800};
    std::array<std::uint64_t, kLimits.size() + 1> counts{};  ///< The last one: longer.
    std::uint64_t count = 0;
    double sum_s = 0;

    void add(Duration duration) noexcept;
};

/// Sums over the life of a job. They never decrease.
struct JobTotals {
    std::array<Duration, kJobStates> time{};                 ///< By JobState.
    std::array<std::uint64_t, kCauseWords> restarts{};       ///< Unplanned ends of rounds.
    std::array<std::uint64_t, kCauseWords> planned{};        ///< Planned changes.
    std::array<Histogram, kStageNames.size()> recoveries{};  ///< Unplanned, complete; by stage.
    std::uint64_t cut_short = 0;                             ///< Incidents without a first step.
    std::uint64_t rounds = 0;                                ///< Rounds formed.
    std::uint64_t nodes_joined = 0;
    std::uint64_t nodes_left = 0;
    std::uint64_t nodes_lost = 0;
    std::uint64_t nodes_quarantined = 0;
    std::uint64_t worker_failures = 0;  ///< As reported: peers of a failed worker count, too.
    std::uint64_t lost_steps = 0;       ///< Committed steps that are done again.
};

}  // namespace regroup::rendezvous
