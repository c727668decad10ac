// SPDX-License-Identifier: Apache-2.0
//
// Rows of styled text, and tables of them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace regroup::launcher::top {

enum class Style : std::uint8_t {
    normal,
    dim,
    bold,
    good,
    warning,
    bad,
    bar,       ///< The title.
    heading,   ///< Of a table.
    selected,  ///< The row under the cursor.
};

struct Span {
    std::string text;
    Style style = Style::normal;
};
using Row = std::vector<Span>;

struct Column {
    std::string title;
    bool right = false;      ///< Numbers.
    unsigned order = 0;      ///< Without room, the column with the highest order goes first.
    std::size_t widest = 0;  ///< The most columns of the terminal; 0: what the others leave.
};
/// A cell for each column.
using Cells = std::vector<Span>;

/// Lays out tables of the same columns for a terminal of `width` columns.
class Table {
   public:
    /// `rows` determine the widths; they may be more than those that are shown.
    Table(std::vector<Column> columns, const std::vector<Cells>& rows, std::size_t width);

    /// `sorted`: the column that gets a mark; `reversed`: which one.
    [[nodiscard]] Row heading(std::size_t sorted, bool reversed) const;
    [[nodiscard]] Row row(const Cells& cells) const;

   private:
    [[nodiscard]] Row laid_out(const Cells& cells) const;

    std::vector<Column> columns_;
    std::vector<std::size_t> widths_;  ///< 0: the column is left out.
};

/// The row in one style, filled up to `width`.
[[nodiscard]] Row painted(const Row& row, Style style, std::size_t width);
/// At most `width` columns of it.
[[nodiscard]] Row clipped(const Row& row, std::size_t width);
[[nodiscard]] std::string text_of(const Row& row);

}  // namespace regroup::launcher::top
