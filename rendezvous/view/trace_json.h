// SPDX-License-Identifier: Apache-2.0
//
// A job as a trace: https://ui.perfetto.dev and chrome://tracing show it. docs/events.md says what
// is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/view/job_history.h"

namespace regroup::rendezvous {

struct TraceSource {
    std::string job;
    std::int64_t began_ms = 0;  ///< Wall-clock time since 1970 of the beginning of its timeline.
    /// Lines of event_line(), the oldest first. Lines of another form are left out.
    std::vector<std::string_view> lines;
    std::vector<StepSample> samples{};
    /// On the job's timeline: the end of what still runs. It is never before the last line.
    Instant now{};
};

struct TraceLimits {
    /// With more slices of ranks than these, each node has slices in place of its ranks.
    std::size_t rank_slices_max = 20'000;
    /// The newest rounds whose slices fit. The rounds before have none.
    std::size_t slices_max = 100'000;
};

/// Trace events in Chrome's JSON format, with microseconds of the job's timeline. Pure; takes about
/// a second for the largest job, so not for a thread that must answer soon.
[[nodiscard]] std::string trace_json(const TraceSource& source, const TraceLimits& limits = {});

}  // namespace regroup::rendezvous
