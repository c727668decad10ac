// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "rendezvous/base/utf8.h"

namespace regroup {

namespace {

/// In order. Controls, line separators, and what Unicode calls Default_Ignorable_Code_Point and
/// interlinear annotation: terminals show nothing for them, or reorder the text around them.
constexpr std::array kHidden = {
    CodeRange{0x00, 0x08},       CodeRange{0x0a, 0x1f},       CodeRange{0x7f, 0x9f},
    CodeRange{0xad, 0xad},       CodeRange{0x034f, 0x034f},   CodeRange{0x061c, 0x061c},
    CodeRange{0x115f, 0x1160},   CodeRange{0x17b4, 0x17b5},   CodeRange{0x180b, 0x180f},
    CodeRange{0x200b, 0x200f},   CodeRange{0x2028, 0x202e},   CodeRange{0x2060, 0x206f},
    CodeRange{0x3164, 0x3164},   CodeRange{0xfe00, 0xfe0f},   CodeRange{0xfeff, 0xfeff},
    CodeRange{0xffa0, 0xffa0},   CodeRange{0xfff0, 0xfffb},   CodeRange{0x1bca0, 0x1bca3},
    CodeRange{0x1d173, 0x1d17a}, CodeRange{0xe0000, 0xe0fff},
};

bool is_hidden(std::uint32_t code) {
    return is_in(kHidden, code);
}

}  // namespace

std::string printable(std::string_view text) {
    std::string shown;
    shown.reserve(text.size());
    while (!text.empty()) {
        const Character next = first_character(text);
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
        const Character next = first_character(rest);
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
