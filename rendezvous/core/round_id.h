// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace regroup::rendezvous {

/// Identifies one agent process; a restarted agent has a new node id. Chosen by the agent.
using NodeId = std::string;

/// Identifies a round. Strictly increasing within a job; never reused.
enum class RoundId : std::uint64_t { none = 0 };

[[nodiscard]] constexpr std::uint64_t number(RoundId round) noexcept {
    return static_cast<std::uint64_t>(round);
}
[[nodiscard]] constexpr RoundId next(RoundId round) noexcept {
    return static_cast<RoundId>(number(round) + 1);
}

}  // namespace regroup::rendezvous
