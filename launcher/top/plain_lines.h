// SPDX-License-Identifier: Apache-2.0
//
// `regroup top` without a terminal: a line per job at each interval. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/top/status.h"

namespace regroup::launcher::top {

/// The names of the columns, which have the same widths in all lines.
[[nodiscard]] std::string plain_heading();
/// A line for each job, or one that says that there is none. `time`: "21:30:05 UTC".
[[nodiscard]] std::vector<std::string> plain_lines(const Status& status, const std::string& time);

}  // namespace regroup::launcher::top
