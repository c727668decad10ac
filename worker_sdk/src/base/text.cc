// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/text.h"

#include <algorithm>
#include <charconv>

namespace regroup {

std::string listed(std::span<const std::string> names, std::size_t named_max) {
    std::string text;
    for (const std::string& name : names.first(std::min(names.size(), named_max))) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return names.size() <= named_max
               ? text
               : text + " and " + std::to_string(names.size() - named_max) + " more";
}

std::string listed_ranks(std::span<const std::uint32_t> ranks) {
    std::vector<std::string> names;
    for (const std::uint32_t rank : ranks) {
        names.push_back(std::to_string(rank));
    }
    return (ranks.size() == 1 ? "rank " : "ranks ") + listed(names);
}

std::string hex_of(std::span<const std::byte> bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const std::byte byte : bytes) {
        text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
        text += kDigits[std::to_integer<unsigned>(byte) & 15U];
    }
    return text;
}

bool parse_hex(std::string_view text, std::span<std::byte> bytes) {
    if (text.size() != 2 * bytes.size()) {
        return false;
    }
    const char* digits = text.data();
    for (std::byte& byte : bytes) {
        unsigned char value = 0;
        if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
            return false;
        }
        byte = std::byte{value};
        digits += 2;
    }
    return true;
}

}  // namespace regroup
