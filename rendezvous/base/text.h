// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
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

/// The parts of `text` between separators: one more than there are separators.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// "host:29400", "[::1]:29400".
[[nodiscard]] std::string host_and_port(std::string_view host, std::uint16_t port);

}  // namespace regroup
