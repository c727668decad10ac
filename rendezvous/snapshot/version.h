// SPDX-License-Identifier: Apache-2.0
//
// The state of a training, as agents keep it. Words: a *part* is the bytes that one rank saves of
// one step. A *version* is one saved step. It is *whole* if every part of it is there and verifies.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace regroup::snapshot {

/// Names one saved step. A later version was saved later in the training, or by a later training.
struct Version {
    /// When the training began, in ns since 1970; a training that goes on from a snapshot keeps it.
    /// 0: none.
    std::uint64_t history = 0;
    std::uint64_t round = 0;  ///< The round in which it was saved.
    std::uint64_t step = 0;

    friend auto operator<=>(const Version&, const Version&) = default;
};
/// For people: "step 40 (round 3)".
[[nodiscard]] std::string to_string(const Version& version);

/// Names one part of the state called `name`. With other `parts` the same bytes are another part,
/// since each rank then saves other bytes.
struct PartId {
    std::string name;
    std::uint32_t part = 0;   ///< Less than `parts`.
    std::uint32_t parts = 1;  ///< At least 1, at most kPartsMax.

    friend auto operator<=>(const PartId&, const PartId&) = default;
};
inline constexpr std::uint32_t kPartsMax = 1U << 20U;

/// Names of states are also names of folders: 1 to 64 letters, digits, '-', '_' and '.', and a
/// letter or digit first.
[[nodiscard]] bool is_state_name(const std::string& name) noexcept;

}  // namespace regroup::snapshot
