// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The rank that all others wait for: of those with the smallest (step, operations) one that is not
/// waiting in a collective itself, `first_to_complain` rather than another. If all of these wait,
/// the furthest behind is it, for what it waits for is not what the others wait for. Among equals
/// one whose process is stopped is it before all others. Nothing if all ranks wait at the same
/// place: then the fault is between them.
[[nodiscard]] std::optional<HangCulprit> find_culprit(std::span<const RankPosition> positions,
                                                      std::uint32_t first_to_complain);

/// True if the workers have told nothing of themselves: there are their silence, and what the
/// kernel says of them.
[[nodiscard]] bool tell_nothing(std::span<const RankPosition> positions);
/// Of such workers the one that is stopped, or else has been silent longest; `first_to_complain`
/// rather than another. `name_of` tells the node of a rank.
[[nodiscard]] std::optional<HangCulprit> find_silent(
    std::span<const RankPosition> positions, std::uint32_t first_to_complain,
    const std::function<std::string(std::uint32_t rank)>& name_of);

}  // namespace regroup::rendezvous
