// SPDX-License-Identifier: Apache-2.0
//
// Rows about one job, besides its nodes. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "launcher/top/status.h"
#include "launcher/top/table.h"

namespace regroup::launcher::top {

/// A row of one span.
[[nodiscard]] Row line(std::string text, Style style = Style::normal);
/// The activity of the job, its numbers, and its steps over time.
[[nodiscard]] std::vector<Row> head_of(const Job& job, std::size_t width, bool utf8);
/// The failures and recoveries, the newest first.
[[nodiscard]] std::vector<Row> tail_of(const Job& job);
[[nodiscard]] std::vector<Row> help_rows();

}  // namespace regroup::launcher::top
