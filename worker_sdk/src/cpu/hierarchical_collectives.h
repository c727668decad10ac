// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "worker_sdk/src/cpu/lane_collectives.h"
#include "worker_sdk/src/cpu/node_collectives.h"
#include "worker_sdk/src/cpu/node_layout.h"

namespace regroup::cpu {

/// The algorithms for a group with several nodes, of which some have several ranks. The ranks of a
/// node combine their values in shared memory, so that each value crosses the network once for each
/// node. The places that every node has are the lanes: rank 2 of each node belongs to lane 2.
///
///     large all_reduce   in each node, rank i reduces chunk i; lane i reduces chunk i over the
///                        nodes, on connections of its own; in each node, all fetch the chunks
///     small all_reduce   in each node to the first rank; among the first ranks; in each node from
///                        the first rank
///     broadcast          from the root to one rank of each node, and on from there
///
/// The order in which values are combined depends on ranks and nodes alone. So results have the
/// same bits on all ranks and in every repetition.
class HierarchicalCollectives {
   public:
    /// `node` is nullptr if this rank is alone on its node.
    HierarchicalCollectives(LaneCollectives& across, NodeCollectives* node, NodeLayout layout);

    /// False for the collectives that go over the connections alone.
    [[nodiscard]] static bool knows(OperationKind kind) noexcept;
    /// As LaneCollectives::carry_out; the time of the collective begins `now`.
    void carry_out(const Operation& operation, Instant now);

   private:
    void all_reduce(const Operation& operation);
    void small_all_reduce(const Operation& operation);
    void broadcast(const Operation& operation);
    void in_node(Operation step, OperationKind kind);

    LaneCollectives& across_;
    NodeCollectives* const node_;
    const NodeLayout layout_;
    const std::uint32_t lanes_;
    const std::vector<std::uint32_t> lane_;     // Of this rank; empty if it has none.
    const std::vector<std::uint32_t> leaders_;  // The first rank of each node.

    // Of the collective under way.
    Instant now_;
    Signature called_{};
};

}  // namespace regroup::cpu
