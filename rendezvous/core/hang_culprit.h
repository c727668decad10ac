// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// On whom a round hangs.
struct HangCulprit {
    std::uint32_t rank = 0;
    std::string reason;  ///< "rank 3 is in section 'load' at step 12, and the others wait for it".
};

/// The rank that all others wait for: of those with the smallest (step, operations) one that is not
/// waiting in a collective itself, `first_to_complain` rather than another. If all of these wait,
/// the furthest behind is it, for what it waits for is not what the others wait for. Nothing if all
/// ranks wait at the same place: then the fault is between them.
[[nodiscard]] std::optional<HangCulprit> find_culprit(std::span<const RankPosition> positions,
                                                      std::uint32_t first_to_complain);

}  // namespace regroup::rendezvous
