// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// "round 3".
[[nodiscard]] inline std::string round_name(rendezvous::RoundId round) {
    return "round " + std::to_string(number(round));
}

/// "rank 3", "ranks 0-3".
[[nodiscard]] inline std::string rank_range(std::uint32_t first, std::uint32_t last) {
    return last == first ? "rank " + std::to_string(first)
                         : "ranks " + std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace regroup::agent
