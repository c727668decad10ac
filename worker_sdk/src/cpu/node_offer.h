// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {

/// What a rank tells the others along with its address, so that those of one node can share memory
/// as soon as they know each other.
struct NodeOffer {
    SharedMemory::Ticket memory{};  ///< None if there is too little for the segments of all.
    std::array<std::uint64_t, 16> processors{};  ///< Bits of those on which it may run.
    std::uint64_t node_ranks = 0;                ///< Ranks on its node, in all groups together.
    ProcessorQuota quota{};

    /// One word. `parse` gives nothing if it is not that.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] static std::optional<NodeOffer> parse(std::string_view text);
};

/// An offer and the segment behind it, which the others can open as long as this lives.
struct NodeShare {
    SharedMemory memory;
    NodeOffer offer;
};

/// Makes a segment of NodeMemory::segment_bytes, unless the machine has no room for one of each of
/// `world_size` ranks.
[[nodiscard]] NodeShare make_share(std::uint32_t world_size, std::uint32_t node_ranks);

}  // namespace regroup::cpu
