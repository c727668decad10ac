// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>

#include "rendezvous/base/clock.h"

namespace regroup {

/// A time of the wall clock, for people: "2026-11-21 10:05:26". Empty if no calendar has it.
[[nodiscard]] std::string local_time_text(std::time_t seconds);
/// The same in UTC, as ISO 8601: "2026-11-21T10:05:26Z".
[[nodiscard]] std::string universal_time_text(std::time_t seconds);
/// A long time, for people: "45 s", "12 min", "3 h 20 min", "2 d 4 h".
[[nodiscard]] std::string format_age(Duration age);

}  // namespace regroup
