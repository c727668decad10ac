// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace regroup::rendezvous {

/// Names one agent process for its life; a restarted agent is a new node id. Chosen by the agent.
using NodeId = std::string;

/// One agreed membership. Strictly rising within a job; never repeated.
enum class RoundId : std::uint64_t { none = 0 };

[[nodiscard]] constexpr std::uint64_t number(RoundId round) noexcept {
    return static_cast<std::uint64_t>(round);
}
[[nodiscard]] constexpr RoundId next(RoundId round) noexcept {
    return static_cast<RoundId>(number(round) + 1);
}

}  // namespace regroup::rendezvous
