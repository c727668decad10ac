// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/node_layout.h"
#include "worker_sdk/src/cpu/node_memory.h"
#include "worker_sdk/src/cpu/node_messenger.h"
#include "worker_sdk/src/cpu/node_offer.h"
#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {

/// Identifies the node of this process: a hash of the running kernel, the network namespace, and
/// the node's rank in the job, so that nodes simulated on one machine stay apart. 0 if unknown.
[[nodiscard]] std::uint64_t node_identity(const Context& context);

/// The means by which the ranks of a group agree; each a collective.
struct Table {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    /// All ranks' bytes, equally many of each, in the order of ranks.
    std::function<void(ConstTensorView mine, TensorView all)> gather{};
    /// The largest of all ranks' numbers.
    std::function<std::uint64_t(std::uint64_t mine)> maximum{};
};

/// Shared memory of the ranks of one node, mapped by all of them.
struct SharedParts {
    std::vector<SharedMemory> parts{};  ///< in the order of `neighbours`; empty if any rank fails
    std::string problem{};              ///< The reason, the same on all ranks of the group.
};

/// Reserves `bytes` of memory on every rank and maps the memory of this rank's neighbours, the
/// ranks of its node. A collective of the table with the same outcome on all ranks.
[[nodiscard]] SharedParts share_memory(const Table& table,
                                       const std::vector<std::uint32_t>& neighbours,
                                       std::size_t bytes);

/// The memory that the ranks of one node share.
struct SharedNode {
    std::shared_ptr<const NodeMemory> memory{};  ///< nullptr if this rank is alone.
    std::vector<Neighbour> neighbours{};         ///< The other ranks.
};

/// How the ranks of a group agree whether they share memory.
struct Agreement {
    Instant deadline;
    /// Called while this rank waits; an exception from it ends the wait.
    std::function<void()> check{};
    /// Called on the first rank of each node, if there are several nodes. Returns true if all of
    /// them give true.
    std::function<bool(bool mine)> among_nodes{};
};

/// Forms the shared memory of each node of a group whose layout has nodes. `own` is the segment
/// that this rank offers. Returns nothing and sets `problem` if some ranks of a node cannot share
/// memory: on all ranks alike. Throws Error `deadline_exceeded`.
///
/// The ranks of a node agree in the memory itself, and need no connection for it: a rank that can
/// open all of it can read what the others say, and a rank that cannot knows the answer.
[[nodiscard]] std::optional<SharedNode> form_nodes(const std::vector<Peer>& peers,
                                                   const NodeLayout& layout, SharedMemory own,
                                                   const Agreement& agreement,
                                                   std::string& problem);

/// True if there are fewer processors than ranks on the machine of `rank`, as far as it knows.
[[nodiscard]] bool is_crowded(const std::vector<Peer>& peers, std::uint32_t rank);

}  // namespace regroup::cpu
