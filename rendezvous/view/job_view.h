// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/job_status.h"
#include "rendezvous/view/job_history.h"
#include "rendezvous/view/job_telemetry.h"
#include "rendezvous/view/job_totals.h"

namespace regroup::rendezvous {

/// All that a daemon tells about one job. The status text and its JSON, the page, `top` and the
/// metrics are renderings of it.
struct JobView {
    std::string job;
    std::int64_t began_ms = 0;  ///< Wall-clock time of the daemon, since 1970.
    std::int64_t now_ms = 0;    ///< The same, when the view was made.
    JobStatus status;
    std::string journal{};  ///< Journal::trouble; may be empty.
    JobState state = JobState::waiting;
    JobTotals totals{};
    double step_rate = 0;                 ///< Steps per second now.
    std::optional<Duration> last_step{};  ///< How long ago it was; nothing before the first.
    std::optional<Duration> stalled{};    ///< How long it has stood still, if it has.
    std::vector<StepSample> samples{};    ///< Steps over time, on the job's timeline.
    Instant now{};                        ///< On the job's timeline.
    LastLoss last_loss{};
    std::int64_t last_step_ms = 0;  ///< Wall-clock time of the last committed step; 0 before.
    std::uint64_t last_event = 0;   ///< RecordedEvent::number.
    JobTelemetry telemetry{};
    JobSnapshots snapshots{};
    std::vector<SlowRank> slow_ranks{};  ///< Slowest first.
};

/// The work on which the job spends its time, or kStalled; once it has ended, how it did:
/// "succeeded" and so on.
[[nodiscard]] std::string_view state_word(const JobView& job) noexcept;

/// The state of a job that trains and commits no step for much longer than usual.
inline constexpr std::string_view kStalled = "stalled";

/// The version of the JSON below. Fields may be added without a new version.
inline constexpr int kViewVersion = 1;

/// A JSON object with one element of `jobs` for each job, of at most `bytes_max` bytes;
/// docs/status.schema.json describes it. If it does not fit, samples, old incidents and members
/// of the round are left out first, then jobs; `nodes_left_out` and `jobs_left_out` count them.
[[nodiscard]] std::string jobs_json(const std::vector<JobView>& jobs, std::size_t bytes_max);

}  // namespace regroup::rendezvous
