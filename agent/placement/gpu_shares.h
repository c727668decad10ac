// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The request (--gpus-per-rank), and the GPUs of this node.
struct GpuShareRequest {
    std::uint32_t rank_count = 1;     ///< Local ranks; at least 1.
    std::uint32_t gpus_per_rank = 1;  ///< 0: "auto", all GPUs divided evenly.
    /// The inherited CUDA_VISIBLE_DEVICES, if it is set: indices, UUIDs, parts of a GPU (MIG).
    std::optional<std::string> visible;
    std::uint32_t gpu_count = 0;  ///< GPUs of the machine; 0 if not known.
};

struct GpuShares {
    std::uint32_t gpus_per_rank = 1;
    /// CUDA_VISIBLE_DEVICES by local rank. Entries are those of the inherited list, unchanged.
    std::vector<std::string> visible;
    std::string note;  ///< One sentence if some GPUs are unused; else empty.
};

/// Divides the visible GPUs among the local ranks, in order: with `gpus_per_rank` = 2, local rank 1
/// gets the third and the fourth. Errors: invalid_argument, with both numbers, when there
/// are too few.
Result<GpuShares> share_gpus(const GpuShareRequest& request);

/// The entries of CUDA_VISIBLE_DEVICES as CUDA reads them: up to the first that names no device,
/// such as -1, Slurm's NoDevFiles, or an index from `gpu_count` on (`gpu_count` 0: not known).
[[nodiscard]] std::vector<std::string> visible_entries(std::string_view list,
                                                       std::uint32_t gpu_count = 0);

}  // namespace regroup::agent
