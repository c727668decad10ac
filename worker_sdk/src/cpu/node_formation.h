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

#include "worker_sdk/src/cpu/node_collectives.h"
#include "worker_sdk/src/cpu/node_offer.h"
#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {

/// Identifies the node of this process: a hash of the running kernel, the network namespace, and
/// the node's rank in the job, so that nodes simulated on one machine stay apart. 0 if unknown.
[[nodiscard]] std::uint64_t node_identity(const Context& context);

/// One rank's access to the others while the ranks agree on something.
struct Table {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    /// All ranks' bytes, equally many of each, in the order of ranks; a collective.
    std::function<void(ConstTensorView mine, TensorView all)> gather;
};

/// The shared memory of every rank, mapped by all ranks.
struct SharedParts {
    std::vector<SharedMemory> parts{};  ///< by rank; empty if any rank fails
    std::string problem{};              ///< The reason, the same on all ranks.
};

/// Reserves `bytes` of memory on every rank and maps the memory of all ranks. A collective of the
/// table with the same outcome on all ranks.
[[nodiscard]] SharedParts share_memory(const Table& table, std::size_t bytes);

/// Forms the shared memory of a group whose ranks appear to be on one node. `offers` are the offers
/// of all ranks; this rank's describes `own`. Returns nullptr and sets `problem` if the ranks
/// cannot share memory. A collective as above, with one exchange: whether every rank could open all
/// segments.
[[nodiscard]] std::unique_ptr<NodeCollectives> form_node(const Table& table, SharedMemory own,
                                                         const std::vector<NodeOffer>& offers,
                                                         std::vector<std::string> names,
                                                         std::string& problem);

}  // namespace regroup::cpu
