// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// "3, 5 and 2 more": the first `named_max` of the names.
[[nodiscard]] std::string listed(std::span<const std::string> names, std::size_t named_max = 16);
/// "rank 3", or "ranks 3, 5 and 2 more".
[[nodiscard]] std::string listed_ranks(std::span<const std::uint32_t> ranks);

/// Two hexadecimal digits for each byte.
[[nodiscard]] std::string hex_of(std::span<const std::byte> bytes);
/// The bytes of such a text. False if it is none, or of another length than `bytes`.
[[nodiscard]] bool parse_hex(std::string_view text, std::span<std::byte> bytes);

}  // namespace regroup
