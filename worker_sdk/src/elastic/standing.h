// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <span>

namespace regroup::elastic {

/// Where a rank stands when a round begins.
struct Standing {
    std::uint64_t step = 0;     ///< Committed.
    std::uint64_t samples = 0;  ///< Consumed by those.
    /// When its training began, as link::history; where it would begin, for a fresh rank.
    std::uint64_t history = 0;
    std::uint64_t layout = 0;  ///< Hash of what it keeps.
    std::uint64_t fresh = 1;   ///< 0 once it has taken part in a round.

    friend bool operator==(const Standing&, const Standing&) = default;
};

/// From where a round goes on.
struct Origin {
    std::uint32_t rank = 0;  ///< Has the state.
    Standing standing{};
    bool is_needed = false;  ///< Somebody else has another state, or may have.
};

/// The rank that has committed most. Of those, one that has been there before, and the lowest. As
/// no rank can be two steps behind another that has been there, nothing is lost that any survivor
/// has applied. Throws Error `invalid_argument` naming two ranks that keep different things.
[[nodiscard]] Origin choose_origin(std::span<const Standing> standings);

/// Asks all ranks; a collective.
[[nodiscard]] Origin find_origin(ProcessGroup& group, const Standing& mine);

}  // namespace regroup::elastic
