// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace regroup {

inline constexpr std::string_view kUnnamed = "unknown";

/// The name of `value`. Its enumeration has the values 0, 1, and so on, and `names` is in their
/// order.
template <class Enum, std::size_t N>
[[nodiscard]] constexpr std::string_view name_in(const std::string_view (&names)[N],
                                                 Enum value) noexcept {
    const auto at = static_cast<std::size_t>(value);
    return at < N ? names[at] : kUnnamed;
}

/// The value of such an enumeration that to_string() calls `name`; nothing if there is none.
template <class Enum>
[[nodiscard]] std::optional<Enum> value_named(std::string_view name) noexcept {
    for (int number = 0;; ++number) {
        const auto value = static_cast<Enum>(number);
        const std::string_view its_name = to_string(value);
        if (its_name == kUnnamed) {
            return std::nullopt;
        }
        if (its_name == name) {
            return value;
        }
    }
}

}  // namespace regroup
