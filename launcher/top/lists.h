// SPDX-License-Identifier: Apache-2.0
//
// The tables of `regroup top`. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/top/status.h"
#include "launcher/top/table.h"

namespace regroup::launcher::top {

/// The first so many columns of each list can be sorted by.
inline constexpr std::size_t kSortedColumns = 6;
/// A node that the daemon has not heard from for so long is marked.
inline constexpr Duration kSilentAfter = std::chrono::seconds(10);

struct Order {
    std::size_t column = 0;
    bool reversed = false;
    std::string filter{};  ///< Only rows that contain it, in lower or upper case.
};

struct List {
    std::vector<Column> columns;
    std::vector<std::string> keys;  ///< Of the rows.
    std::vector<Cells> rows;
};
[[nodiscard]] List list_of_jobs(const std::vector<Job>& jobs, const Order& order);
[[nodiscard]] List list_of_nodes(const Job& job, const Order& order);

[[nodiscard]] Style style_of_phase(const std::string& phase);

}  // namespace regroup::launcher::top
