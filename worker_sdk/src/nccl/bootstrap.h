// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nccl.h>
#include <string>
#include <string_view>

#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {

/// The number of NCCL's bootstrap roots for a group, and the ranks that host them.
struct RootPlan {
    std::uint32_t roots = 1;
    /// Which root this rank hosts; `roots` if none.
    std::uint32_t hosted = 1;
};

/// Beyond these sizes every node hosts a root of its own. A root serves its ranks one after the
/// other. Up to about a hundred ranks, one root is faster than the exchange of several ids; NCCL
/// itself delays ranks from 256 on one root.
inline constexpr std::uint32_t kRanksOfOneRoot = 128;
inline constexpr std::uint32_t kNodesOfOneRoot = 8;

/// Requires a library that can take several ids if `scalable`.
[[nodiscard]] RootPlan plan_roots(std::uint32_t rank, std::uint32_t world_size,
                                  std::uint32_t local_rank, std::uint32_t node, std::uint32_t nodes,
                                  bool scalable);

/// A fresh id, served by a thread of NCCL in this process. The process must live until all ranks
/// have connected. Programs that this process starts do not inherit the listening socket. Throws
/// Error `system`.
[[nodiscard]] ncclUniqueId make_unique_id(const NcclApi& api);

/// Converts an id to text for the store, and back. Throws Error `invalid_argument` for invalid
/// text.
[[nodiscard]] std::string to_text(const ncclUniqueId& id);
[[nodiscard]] ncclUniqueId parse_unique_id(std::string_view text);

}  // namespace regroup::nccl
