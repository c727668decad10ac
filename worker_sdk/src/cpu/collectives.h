// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/collective_lane.h"
#include "worker_sdk/src/cpu/collective_links.h"
#include "worker_sdk/src/cpu/executor.h"
#include "worker_sdk/src/cpu/hierarchical_collectives.h"
#include "worker_sdk/src/cpu/lane_collectives.h"
#include "worker_sdk/src/cpu/node_collectives.h"
#include "worker_sdk/src/cpu/node_layout.h"
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

/// Carries out the collectives of a group: over its connections, in shared memory where all ranks
/// are on one node, or both. One thread at a time, unless a comment says otherwise.
class Collectives final : public CollectiveEngine {
   public:
    /// `crowded`: there are fewer processors than ranks.
    Collectives(std::unique_ptr<CollectiveLinks> links, RollCall& roll_call, NodeLayout layout,
                bool crowded);

    /// The ranks of each node share memory from the next collective on. Called while none is under
    /// way. `memory` is nullptr if this rank is alone on its node, whose ranks have `names`.
    /// `listener` hears of ranks of the group: see NodeCollectives.
    void share(std::shared_ptr<const NodeMemory> memory, std::vector<std::string> names,
               NodeCollectives::Listener listener);
    /// True if all ranks share memory: collectives use no connection.
    [[nodiscard]] bool is_in_memory() const noexcept { return node_ && !hierarchy_; }

    void carry_out(Operation& operation, Instant now) override;

    // Any thread.

    /// nullptr if this rank shares no memory.
    [[nodiscard]] Regions* regions() noexcept { return node_ ? &node_->regions() : nullptr; }
    /// Payload bytes that this rank has sent to other ranks over connections.
    [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return lane_.bytes_sent(); }
    void stop(bool orderly) noexcept override;

   private:
    void carry_out_over_connections(Operation& operation, Instant now);

    const std::unique_ptr<CollectiveLinks> links_;
    const NodeLayout layout_;
    CollectiveLane lane_;
    LaneCollectives across_;
    std::unique_ptr<NodeCollectives> node_;
    std::optional<HierarchicalCollectives> hierarchy_;
};

}  // namespace regroup::cpu
