// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// What is asked for (--gpus-per-rank), and what this node has.
struct GpuShareRequest {
    std::uint32_t rank_count = 1;     ///< Local ranks; at least 1.
    std::uint32_t gpus_per_rank = 1;  ///< 0, "auto": as many as there are for each.
    /// CUDA_VISIBLE_DEVICES as it is inherited, if it is set: indices, UUIDs, parts of a GPU (MIG).
    std::optional<std::string> visible;
    std::uint32_t gpu_count = 0;  ///< Of the machine; 0 if that is not known.
};

struct GpuShares {
    std::uint32_t gpus_per_rank = 1;
    /// CUDA_VISIBLE_DEVICES by local rank. Entries are those of the inherited list, unchanged.
    std::vector<std::string> visible;
    std::string note;  ///< One sentence when some GPUs are nobody's; else empty.
};

/// Divides the GPUs that can be seen among the local ranks, in order: of `gpus_per_rank` = 2, local
/// rank 1 gets the third and the fourth. Errors: invalid_argument, with both numbers, when there
/// are too few.
Result<GpuShares> share_gpus(const GpuShareRequest& request);

/// The entries of CUDA_VISIBLE_DEVICES as CUDA reads them: up to the first that names no device,
/// such as -1 or Slurm's NoDevFiles, or an index that a machine of `gpu_count` GPUs does not have
/// (0: not known).
[[nodiscard]] std::vector<std::string> visible_entries(std::string_view list,
                                                       std::uint32_t gpu_count = 0);

}  // namespace regroup::agent
