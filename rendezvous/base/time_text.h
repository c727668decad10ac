// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>

namespace regroup {

/// A time of the wall clock, for people: "2026-11-21 10:05:26". Empty if no calendar has it.
[[nodiscard]] std::string local_time_text(std::time_t seconds);
/// The same in UTC, as ISO 8601: "2026-11-21T10:05:26Z".
[[nodiscard]] std::string universal_time_text(std::time_t seconds);

}  // namespace regroup
