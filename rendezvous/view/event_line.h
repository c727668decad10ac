// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace regroup::rendezvous {

struct RecordedEvent;

/// The event as one line of JSON, without a newline; docs/events.md lists the fields. Long texts
/// are cut.
[[nodiscard]] std::string event_line(const std::string& job, const RecordedEvent& entry);

/// "2026-11-25T21:20:00.123Z".
[[nodiscard]] std::string utc_time(std::int64_t wall_ms);

}  // namespace regroup::rendezvous
