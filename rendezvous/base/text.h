// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace regroup {

/// All of `text` as a number without a plus sign, in its range; else nothing.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, int base = 10) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, base);
    return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// `text` without white space at its two ends.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// With the letters of ASCII in lower case.
[[nodiscard]] std::string lower(std::string_view text);

/// The parts of `text` between separators: one more than there are separators.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The parts with `separator` between them: texts, or whole numbers.
template <class Parts>
[[nodiscard]] std::string joined(const Parts& parts, std::string_view separator) {
    std::string text;
    bool is_first = true;
    for (const auto& part : parts) {
        text += is_first ? std::string_view() : separator;
        is_first = false;
        if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
            text += std::to_string(part);
        } else {
            text += part;
        }
    }
    return text;
}

/// "host:29400", "[::1]:29400".
[[nodiscard]] std::string host_and_port(std::string_view host, std::uint16_t port);

}  // namespace regroup
