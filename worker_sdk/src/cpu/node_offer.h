// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/cpu/doorbell.h"
#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {

/// A rank publishes its offer with its address. So the ranks of one node can share memory as soon
/// as they know each other, and all know which of them share processors.
struct NodeOffer {
    SharedMemory::Ticket memory{};  ///< None if there is too little memory for all segments.
    FileTicket doorbell{};
    std::uint64_t machine = 0;  ///< Nodes may be simulated on one machine; 0: unknown.
    std::array<std::uint64_t, 16> processors{};  ///< Bit set of allowed processors.
    std::uint64_t node_ranks = 0;                ///< Ranks on its node, in all groups together.
    ProcessorQuota quota{};

    /// False if the rank has offered no memory, since it expects no other rank on its node.
    [[nodiscard]] bool shares() const noexcept { return doorbell.descriptor >= 0; }
    /// The offer as one word. `parse` returns nothing for invalid text.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] static std::optional<NodeOffer> parse(std::string_view text);
};

/// An offer with its segment and its doorbell, which other ranks can open as long as they live.
struct NodeShare {
    SharedMemory memory;
    Doorbell doorbell;
    NodeOffer offer;
};

/// A hash of the running kernel; 0 if unknown.
[[nodiscard]] std::uint64_t machine_identity();

/// This rank's offer: its processors, and no memory.
[[nodiscard]] NodeOffer make_offer(std::uint32_t node_ranks);

/// Makes a segment of NodeMemory::segment_bytes, unless the machine has no room for one of each of
/// `sharers` ranks.
[[nodiscard]] NodeShare make_share(std::uint32_t sharers, std::uint32_t node_ranks);

}  // namespace regroup::cpu
