// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Whether ranks wait in collectives for others that are not there.
struct CollectiveVerdict {
    /// The rank that the others wait for.
    std::optional<HangCulprit> culprit{};
    /// All ranks of a group are in the same collective, and it does not end: for people. Empty
    /// otherwise.
    std::string all_entered{};

    [[nodiscard]] bool hangs() const noexcept { return culprit || !all_entered.empty(); }
};

/// Judges by the positions in groups alone. A rank waits for another one if it has been in a
/// collective for `least` or longer that the other one has not entered; or in a message, for its
/// peer. The culprit is a rank that others wait for and that waits for nobody; among several, one
/// that is stopped, then the one that has entered the fewest collectives. Without such a rank, it
/// is one that has called something else than the others, one that is stopped in the collective, or
/// one that has finished.
///
/// `finished`: the ranks that have ended with success; their positions are those of their ends.
/// `node_of` returns the node of a rank.
/// O(n log n) in the groups of all positions.
[[nodiscard]] CollectiveVerdict judge_collectives(
    std::span<const RankPosition> positions, Duration least, const RankSet& finished,
    const std::function<std::string(std::uint32_t rank)>& node_of);

}  // namespace regroup::rendezvous
