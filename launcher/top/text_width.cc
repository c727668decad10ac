// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/text_width.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace regroup::launcher::top {

namespace {

struct Range {
    std::uint32_t first;
    std::uint32_t last;
};

// Combining marks: they stand over the character before them.
constexpr std::array kNarrow = {
    Range{0x0300, 0x036f}, Range{0x0483, 0x0489}, Range{0x0591, 0x05bd}, Range{0x064b, 0x065f},
    Range{0x1ab0, 0x1aff}, Range{0x1dc0, 0x1dff}, Range{0x200b, 0x200f}, Range{0x20d0, 0x20ff},
    Range{0xfe00, 0xfe0f}, Range{0xfe20, 0xfe2f},
};
// East Asian wide and full-width characters, and pictographs.
constexpr std::array kWide = {
    Range{0x1100, 0x115f},   Range{0x2e80, 0x303e},   Range{0x3041, 0xa4cf},
    Range{0xa960, 0xa97c},   Range{0xac00, 0xd7a3},   Range{0xf900, 0xfaff},
    Range{0xfe30, 0xfe6f},   Range{0xff00, 0xff60},   Range{0xffe0, 0xffe6},
    Range{0x1f300, 0x1f64f}, Range{0x1f680, 0x1f6ff}, Range{0x1f900, 0x1f9ff},
    Range{0x20000, 0x3fffd},
};

template <std::size_t Count>
bool is_in(const std::array<Range, Count>& ranges, std::uint32_t code) {
    const auto range =
        std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) { return code <= r.last; });
    return range != ranges.end() && code >= range->first;
}

struct Glyph {
    std::size_t bytes = 1;
    std::size_t columns = 1;
};

/// The character at the front of `text`, which is not empty.
Glyph first_of(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    if (lead < 0xc2 || lead > 0xf4) {
        return {};
    }
    const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (text.size() < bytes) {
        return {};
    }
    std::uint32_t code = lead & (0x7fU >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next & 0xc0U) != 0x80) {
            return {};
        }
        code = code << 6U | (next & 0x3fU);
    }
    return {bytes, is_in(kNarrow, code) ? std::size_t{0} : is_in(kWide, code) ? 2U : 1U};
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
