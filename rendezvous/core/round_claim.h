// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

/// The latest round that a node may claim at a daemon that has not given it a round: one for each
/// millisecond since 1970. A job forms its rounds more slowly than that. So the rounds after an
/// accepted claim can be claimed too, later and at every daemon, and the numbers never run out. A
/// daemon without a journal may skip 99,700 numbers, which the limit reaches within 100 s.
/// `wall_ms`: the wall-clock time since 1970.
[[nodiscard]] constexpr RoundId round_claim_max(std::int64_t wall_ms) noexcept {
    const auto passed = static_cast<std::uint64_t>(std::max<std::int64_t>(0, wall_ms));
    return std::min(RoundId{passed}, RendezvousCore::kRoundClaimMax);
}

}  // namespace regroup::rendezvous
