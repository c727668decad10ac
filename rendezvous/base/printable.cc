// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace regroup {

namespace {

struct Range {
    std::uint32_t first;
    std::uint32_t last;
};

/// In order. Controls, line separators, and what Unicode calls Default_Ignorable_Code_Point and
/// interlinear annotation: terminals show nothing for them, or reorder the text around them.
constexpr std::array kHidden = {
    Range{0x00, 0x08},       Range{0x0a, 0x1f},       Range{0x7f, 0x9f},
    Range{0xad, 0xad},       Range{0x034f, 0x034f},   Range{0x061c, 0x061c},
    Range{0x115f, 0x1160},   Range{0x17b4, 0x17b5},   Range{0x180b, 0x180f},
    Range{0x200b, 0x200f},   Range{0x2028, 0x202e},   Range{0x2060, 0x206f},
    Range{0x3164, 0x3164},   Range{0xfe00, 0xfe0f},   Range{0xfeff, 0xfeff},
    Range{0xffa0, 0xffa0},   Range{0xfff0, 0xfffb},   Range{0x1bca0, 0x1bca3},
    Range{0x1d173, 0x1d17a}, Range{0xe0000, 0xe0fff},
};

bool is_hidden(std::uint32_t code) {
    const auto* const range =
        std::find_if(kHidden.begin(), kHidden.end(), [&](Range r) { return code <= r.last; });
    return range != kHidden.end() && code >= range->first;
}

struct Character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;  ///< Zero: not UTF-8.
};

/// The character at the front of `text`, which is not empty.
Character first_of(std::string_view text) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const std::uint32_t lead = byte(0);
    if (lead < 0x80) {
        return {lead, 1};
    }
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < size) {
        return {};
    }
    std::uint32_t code = lead & (0x7fU >> size);
    for (std::size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xc0U) != 0x80) {
            return {};
        }
        code = code << 6U | (byte(i) & 0x3fU);
    }
    const bool too_long = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
    const bool no_character = (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff;
    return too_long || no_character ? Character{} : Character{code, size};
}

}  // namespace

std::string printable(std::string_view text) {
    std::string shown;
    shown.reserve(text.size());
    while (!text.empty()) {
        const Character next = first_of(text);
        const std::size_t bytes = std::max(next.bytes, std::size_t{1});
        if (next.bytes != 0 && !is_hidden(next.code)) {
            shown += text.substr(0, bytes);
        } else {
            const std::uint32_t value =
                next.bytes != 0 ? next.code : static_cast<unsigned char>(text.front());
            const bool is_byte = next.bytes < 2;
            std::array<char, 16> escape{};
            std::snprintf(escape.data(), escape.size(),
                          is_byte            ? "\\x%02x"
                          : value <= 0xffffU ? "\\u%04x"
                                             : "\\U%08x",
                          static_cast<unsigned>(value));
            shown += escape.data();
        }
        text.remove_prefix(bytes);
    }
    return shown;
}

std::string printable_json(std::string json) {
    // JSON has escaped the lower controls. The rest of ASCII is visible, and nearly every text is
    // nothing else.
    const auto may_be_hidden = [](char c) { return static_cast<unsigned char>(c) >= 0x7f; };
    if (std::none_of(json.begin(), json.end(), may_be_hidden)) {
        return json;
    }
    std::string shown;
    shown.reserve(json.size());
    const auto escape = [&](std::uint32_t unit) {
        std::array<char, 8> text{};
        std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(unit & 0xffffU));
        shown += text.data();
    };
    for (std::string_view rest = json; !rest.empty();) {
        const Character next = first_of(rest);
        const std::size_t bytes = std::max(next.bytes, std::size_t{1});
        if (next.code < 0x7f || !is_hidden(next.code)) {
            shown += rest.substr(0, bytes);
        } else if (next.code <= 0xffff) {
            escape(next.code);
        } else {
            // The two halves of UTF-16.
            escape(0xd800U + ((next.code - 0x10000U) >> 10U));
            escape(0xdc00U + ((next.code - 0x10000U) & 0x3ffU));
        }
        rest.remove_prefix(bytes);
    }
    return shown;
}

std::vector<std::string> printable_lines(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(printable(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::string counted(std::size_t count, std::string_view what) {
    return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

}  // namespace regroup
