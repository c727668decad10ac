// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// The rank that all others wait for: among the ranks with the smallest (step, operations), one
/// that does not wait in a collective itself. Among equals a stopped process comes first, then
/// `first_to_complain`. If all of these ranks wait, the rank furthest behind is the culprit: it
/// waits in another collective than the others. nullopt if all ranks wait at the same place: then
/// the fault is between them.
[[nodiscard]] std::optional<HangCulprit> find_culprit(std::span<const RankPosition> positions,
                                                      std::uint32_t first_to_complain);

/// True if no worker has reported its position: only silence and the kernel's view are known.
[[nodiscard]] bool tell_nothing(std::span<const RankPosition> positions);
/// The culprit among such workers: a stopped one, otherwise the one that has been silent longest,
/// with `first_to_complain` first among equals. `name_of` returns the node of a rank.
[[nodiscard]] std::optional<HangCulprit> find_silent(
    std::span<const RankPosition> positions, std::uint32_t first_to_complain,
    const std::function<std::string(std::uint32_t rank)>& name_of);

}  // namespace regroup::rendezvous
