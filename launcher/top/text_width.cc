// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/text_width.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "rendezvous/base/utf8.h"

namespace regroup::launcher::top {

namespace {

// Combining marks: they stand over the character before them.
constexpr std::array kNarrow = {
    CodeRange{0x0300, 0x036f}, CodeRange{0x0483, 0x0489}, CodeRange{0x0591, 0x05bd},
    CodeRange{0x064b, 0x065f}, CodeRange{0x1ab0, 0x1aff}, CodeRange{0x1dc0, 0x1dff},
    CodeRange{0x200b, 0x200f}, CodeRange{0x20d0, 0x20ff}, CodeRange{0xfe00, 0xfe0f},
    CodeRange{0xfe20, 0xfe2f},
};
// East Asian wide and full-width characters, and pictographs.
constexpr std::array kWide = {
    CodeRange{0x1100, 0x115f},   CodeRange{0x2e80, 0x303e},   CodeRange{0x3041, 0xa4cf},
    CodeRange{0xa960, 0xa97c},   CodeRange{0xac00, 0xd7a3},   CodeRange{0xf900, 0xfaff},
    CodeRange{0xfe30, 0xfe6f},   CodeRange{0xff00, 0xff60},   CodeRange{0xffe0, 0xffe6},
    CodeRange{0x1f300, 0x1f64f}, CodeRange{0x1f680, 0x1f6ff}, CodeRange{0x1f900, 0x1f9ff},
    CodeRange{0x20000, 0x3fffd},
};

struct Glyph {
    std::size_t bytes = 1;
    std::size_t columns = 1;
};

/// The character at the front of `text`, which is not empty.
Glyph first_of(std::string_view text) {
    const auto [code, bytes] = first_character(text);
    return bytes == 0 ? Glyph{}
                      : Glyph{bytes, is_in(kNarrow, code) ? std::size_t{0}
                                     : is_in(kWide, code) ? 2U
                                                          : 1U};
}

/// How many bytes fit, and how many columns they take.
Glyph prefix(std::string_view text, std::size_t columns) {
    Glyph taken{0, 0};
    while (taken.bytes < text.size()) {
        const Glyph next = first_of(text.substr(taken.bytes));
        if (taken.columns + next.columns > columns) {
            break;
        }
        taken.bytes += next.bytes;
        taken.columns += next.columns;
    }
    return taken;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
    return prefix(text, text.size() * 2).columns;
}

std::string cut(std::string_view text, std::size_t columns) {
    const Glyph whole = prefix(text, columns);
    if (whole.bytes == text.size()) {
        return std::string(text);
    }
    return columns == 0 ? "" : std::string(text.substr(0, prefix(text, columns - 1).bytes)) + "~";
}

std::string fit(std::string_view text, std::size_t columns, bool right) {
    std::string fitted = cut(text, columns);
    const std::string fill(columns - std::min(columns, columns_of(fitted)), ' ');
    return right ? fill + fitted : fitted + fill;
}

std::string in_columns(const std::vector<std::string>& cells, const std::vector<int>& widths) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const auto columns = static_cast<std::size_t>(std::abs(widths[i]));
        line += (i == 0 ? "" : "  ") +
                fit(cells[i], std::max(columns, columns_of(cells[i])), widths[i] < 0);
    }
    return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns,
                                 std::size_t lines_max) {
    std::vector<std::string> lines;
    while (!text.empty() && lines.size() < lines_max) {
        const std::size_t fits = prefix(text, columns).bytes;
        if (fits == text.size() || lines.size() + 1 == lines_max || fits == 0) {
            lines.push_back(cut(text, columns));
            break;
        }
        const std::size_t space = text.rfind(' ', fits);
        const std::size_t end = space == text.npos || space == 0 ? fits : space;
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    }
    return lines;
}

bool comes_before(std::string_view left, std::string_view right) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto take_number = [&](std::string_view& text) {
        text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
        std::size_t digits = 0;
        while (digits < text.size() && is_digit(text[digits])) {
            ++digits;
        }
        const std::string_view number = text.substr(0, digits);
        text.remove_prefix(digits);
        return number;
    };
    while (!left.empty() && !right.empty()) {
        if (is_digit(left.front()) && is_digit(right.front())) {
            const std::string_view a = take_number(left);
            const std::string_view b = take_number(right);
            if (a != b) {
                return a.size() != b.size() ? a.size() < b.size() : a < b;
            }
            continue;
        }
        if (left.front() != right.front()) {
            return left.front() < right.front();
        }
        left.remove_prefix(1);
        right.remove_prefix(1);
    }
    return left.size() < right.size();
}

std::string as_ascii(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const Glyph next = first_of(text);
        const bool is_ascii = static_cast<unsigned char>(text.front()) < 0x80;
        shown += is_ascii ? std::string(1, text.front()) : std::string(next.columns, '?');
        text.remove_prefix(next.bytes);
    }
    return shown;
}

std::string without_last(std::string_view text) {
    std::size_t last = 0;
    for (std::size_t at = 0; at < text.size(); at += first_of(text.substr(at)).bytes) {
        last = at;
    }
    return std::string(text.substr(0, last));
}

}  // namespace regroup::launcher::top
