// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "worker_sdk/src/cpu/peer.h"

namespace regroup::cpu {

/// Which ranks of a group are on which node, as one rank sees it.
struct NodeLayout {
    /// The ranks of each node, ascending; nodes in the order of their first ranks.
    std::vector<std::vector<std::uint32_t>> nodes{};
    std::uint32_t node = 0;   ///< Of this rank, in `nodes`.
    std::uint32_t local = 0;  ///< Of this rank, in its node.

    [[nodiscard]] const std::vector<std::uint32_t>& neighbours() const { return nodes[node]; }
    /// Ranks of the smallest node.
    [[nodiscard]] std::uint32_t lanes() const;
    /// The rank with place `place` on each node, in the order of nodes. Requires
    /// `place` < `lanes()`.
    [[nodiscard]] std::vector<std::uint32_t> lane(std::uint32_t place) const;
};

/// The layout, the same on all ranks except for their own places. Empty `nodes` if no two ranks can
/// share memory, or not all ranks say where they are.
[[nodiscard]] NodeLayout layout_of(const std::vector<Peer>& peers, std::uint32_t rank);

}  // namespace regroup::cpu
