// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "launcher/top/text_width.h"

namespace regroup::launcher::top {

namespace {

constexpr std::size_t kGap = 2;
// The last column is left out if it would be narrower.
constexpr std::size_t kRestMin = 8;

}  // namespace

Table::Table(std::vector<Column> columns, const std::vector<Cells>& rows, std::size_t width)
    : columns_(std::move(columns)) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        // One more for the mark of the sorted column.
        std::size_t wanted = columns_of(columns_[i].title) + 1;
        for (const Cells& row : rows) {
            wanted = std::max(wanted, columns_of(row[i].text));
        }
        widths_.push_back(columns_[i].widest == 0 ? kRestMin
                                                  : std::min(wanted, columns_[i].widest));
    }
    const auto taken = [this] {
        std::size_t sum = 0;
        for (const std::size_t column : widths_) {
            sum += column == 0 ? 0 : column + kGap;
        }
        return sum - std::min(sum, kGap);
    };
    while (taken() > width && std::ranges::count(widths_, std::size_t{0}) + 1 <
                                  static_cast<std::ptrdiff_t>(widths_.size())) {
        std::size_t last = 0;
        for (std::size_t i = 0; i < widths_.size(); ++i) {
            if (widths_[i] != 0 &&
                (widths_[last] == 0 || columns_[i].order >= columns_[last].order)) {
                last = i;
            }
        }
        widths_[last] = 0;
    }
    for (std::size_t i = 0; i < widths_.size(); ++i) {
        if (columns_[i].widest == 0 && widths_[i] != 0) {
            widths_[i] += width - std::min(width, taken());
        }
    }
}

Row Table::heading(std::size_t sorted, bool reversed) const {
    Cells cells;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        cells.push_back({columns_[i].title + (i != sorted ? ""
                                              : reversed  ? "^"
                                                          : "v"),
                         Style::heading});
    }
    return laid_out(cells);
}

Row Table::row(const Cells& cells) const {
    return laid_out(cells);
}

Row Table::laid_out(const Cells& cells) const {
    Row row;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (widths_[i] == 0) {
            continue;
        }
        if (!row.empty()) {
            row.push_back({std::string(kGap, ' '), Style::normal});
        }
        row.push_back({fit(cells[i].text, widths_[i], columns_[i].right), cells[i].style});
    }
    return row;
}

Row clipped(const Row& row, std::size_t width) {
    Row kept;
    for (const Span& span : row) {
        const std::size_t columns = columns_of(span.text);
        kept.push_back({cut(span.text, width), span.style});
        if (columns >= width) {
            break;
        }
        width -= columns;
    }
    return kept;
}

Row painted(const Row& row, Style style, std::size_t width) {
    return {{fit(text_of(row), width), style}};
}

std::string text_of(const Row& row) {
    return std::accumulate(
        row.begin(), row.end(), std::string(),
        [](std::string text, const Span& span) { return std::move(text) + span.text; });
}

}  // namespace regroup::launcher::top
