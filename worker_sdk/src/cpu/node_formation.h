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

/// Makes `bytes` of memory on every rank and maps everybody's. A collective of the table, which
/// ends the same way on all ranks.
[[nodiscard]] SharedParts share_memory(const Table& table, std::size_t bytes, bool reserved);

/// The shared memory of a group whose ranks believe to be on one node. `node_ranks` is how many
/// ranks the node has in all groups together. nullptr, and `problem` says why, if they are not.
[[nodiscard]] std::unique_ptr<NodeCollectives> form_node(const Table& table,
                                                         std::uint32_t node_ranks,
                                                         std::vector<std::string> names,
                                                         std::string& problem);

}  // namespace regroup::cpu
