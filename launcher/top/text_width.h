// SPDX-License-Identifier: Apache-2.0
//
// Columns of a terminal that a text takes. Pure: it does not ask the locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::launcher::top {

/// Of UTF-8 text without control characters. A byte that is not UTF-8 takes one column.
[[nodiscard]] std::size_t columns_of(std::string_view text);
/// The beginning of `text` that fits, with "~" at its end if something was cut.
[[nodiscard]] std::string cut(std::string_view text, std::size_t columns);
/// The same, filled with spaces up to `columns`, in front of the text if `right`.
[[nodiscard]] std::string fit(std::string_view text, std::size_t columns, bool right = false);
/// The cells in columns of these widths, two apart; a negative width aligns at the right. A cell
/// that is too wide moves the others: a number that is cut would mislead. No blanks at the end.
[[nodiscard]] std::string in_columns(const std::vector<std::string>& cells,
                                     const std::vector<int>& widths);
/// In lines of at most `columns`, broken at spaces where there are some; the last of `lines_max`
/// lines is cut.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t columns,
                                               std::size_t lines_max);
/// As people order names: "n2" comes before "n10".
[[nodiscard]] bool comes_before(std::string_view left, std::string_view right);
/// With "?" for each column of a character that is not ASCII.
[[nodiscard]] std::string as_ascii(std::string_view text);
/// Without its last character.
[[nodiscard]] std::string without_last(std::string_view text);

}  // namespace regroup::launcher::top
