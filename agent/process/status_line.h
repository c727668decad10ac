// SPDX-License-Identifier: Apache-2.0
//
// A line at the bottom of a terminal that is replaced in place.
#pragma once

#include <string>

namespace regroup::agent {

/// Returns the cursor to the beginning of its row, and erases the row.
inline constexpr const char* kEraseRow = "\r\x1b[K";

/// True if `fd` is a terminal, and this process or its warden is in its foreground.
[[nodiscard]] bool is_own_terminal(int fd);
/// The beginning of `text` that fits in a row of the terminal `fd`: a longer line would wrap, and
/// could not be erased.
[[nodiscard]] std::string row_of(int fd, const std::string& text);

}  // namespace regroup::agent
