// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/utf8.h"

#include <algorithm>

namespace regroup {

Character first_character(std::string_view text) noexcept {
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

bool is_in(std::span<const CodeRange> ranges, std::uint32_t code) noexcept {
    const auto range =
        std::ranges::find_if(ranges, [&](const CodeRange& each) { return code <= each.last; });
    return range != ranges.end() && code >= range->first;
}

std::string_view beginning_of(std::string_view text, std::size_t bytes_max) noexcept {
    std::size_t end = std::min(text.size(), bytes_max);
    for (int i = 0; i < 3 && end > 0 && end < text.size() &&
                    (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80;
         ++i) {
        --end;
    }
    return text.substr(0, end);
}

}  // namespace regroup
