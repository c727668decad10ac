// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/text.h"

#include <algorithm>

namespace regroup {

std::string_view trimmed(std::string_view text) noexcept {
    constexpr std::string_view kBlanks = " \t\n\v\f\r";
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

std::string lower(std::string_view text) {
    std::string low(text);
    std::ranges::transform(low, low.begin(), [](char letter) {
        return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    });
    return low;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
    const bool is_bare_v6 = host.find(':') != host.npos;
    return (is_bare_v6 ? "[" : "") + std::string(host) + (is_bare_v6 ? "]:" : ":") +
           std::to_string(port);
}

}  // namespace regroup
