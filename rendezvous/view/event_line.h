// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace regroup::rendezvous {

struct RecordedEvent;

/// The most bytes of a line: less than an answer to an operator may have.
inline constexpr std::size_t kEventLineBytesMax = std::size_t{72} << 10;

/// The event as one line of JSON, without a newline; docs/events.md lists the fields. Long texts
/// are cut, and nodes that do not fit are left out.
[[nodiscard]] std::string event_line(const std::string& job, const RecordedEvent& entry);
/// The same without the list of nodes, which is nearly all of the line of a large round.
[[nodiscard]] std::string brief_event_line(const std::string& job, const RecordedEvent& entry);

/// "2026-11-25T21:20:00.123Z".
[[nodiscard]] std::string utc_time(std::int64_t wall_ms);

}  // namespace regroup::rendezvous
