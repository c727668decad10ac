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

/// Tells what makes this process's node one: the running kernel, the network namespace, and the
/// node's rank in the job, so that nodes which are simulated on one machine stay apart. 0 if that
/// cannot be told.
[[nodiscard]] std::uint64_t node_identity(const Context& context);

/// One rank's view of the others while they agree on something.
struct Table {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    /// All ranks' bytes, equally many of each, in the order of ranks; a collective.
    std::function<void(ConstTensorView mine, TensorView all)> gather;
};

/// What every rank has made, mapped by each.
struct SharedParts {
    std::vector<SharedMemory> parts{};  ///< by rank; empty if anybody cannot
    std::string problem{};              ///< Why, and the same on all ranks.
};

/// Makes `bytes` of memory, which are there for certain, on every rank and maps everybody's. A
/// collective of the table, which ends the same way on all ranks.
[[nodiscard]] SharedParts share_memory(const Table& table, std::size_t bytes);

/// The shared memory of a group whose ranks believe to be on one node, of which they have made
/// these offers: this rank's stands for `own`. nullptr, and `problem` says why, if they are not. A
/// collective as above, with one exchange in it: whether everybody could open everything.
[[nodiscard]] std::unique_ptr<NodeCollectives> form_node(const Table& table, SharedMemory own,
                                                         const std::vector<NodeOffer>& offers,
                                                         std::vector<std::string> names,
                                                         std::string& problem);

}  // namespace regroup::cpu
