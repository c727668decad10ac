// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace regroup {

struct Character {
    std::uint32_t code = 0;
    std::size_t bytes = 0;  ///< Zero: not UTF-8.
};
/// The character at the front of `text`, which is not empty.
[[nodiscard]] Character first_character(std::string_view text) noexcept;

struct CodeRange {
    std::uint32_t first;
    std::uint32_t last;
};
/// `ranges` are in order.
[[nodiscard]] bool is_in(std::span<const CodeRange> ranges, std::uint32_t code) noexcept;

/// The first `bytes_max` bytes of `text`, or up to three fewer: no half of a character.
[[nodiscard]] std::string_view beginning_of(std::string_view text, std::size_t bytes_max) noexcept;

}  // namespace regroup
