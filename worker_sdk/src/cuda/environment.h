// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace regroup::cuda {

/// The variables for GPUs and NCCL. An empty variable counts as not set, except for
/// CUDA_VISIBLE_DEVICES, where it hides every GPU.
struct Environment {
    std::optional<std::string> visible_devices{};  ///< CUDA_VISIBLE_DEVICES.
    std::optional<std::string> nccl_library{};     ///< REGROUP_NCCL_LIBRARY.
    std::optional<std::string> nccl_comm_id{};     ///< NCCL_COMM_ID.
    bool nccl_blocks = false;                      ///< NCCL_COMM_BLOCKING overrides regroup.
    bool nccl_splits_share = false;                ///< NCCL_COMM_SPLIT_SHARE_RESOURCES=1.
    bool blocking_calls = false;                   ///< REGROUP_NCCL_BLOCKING=1.
    bool share_gpus = false;                       ///< REGROUP_SHARE_GPUS=1.

    [[nodiscard]] static Environment read();
};

/// NCCL's RAS thread tries for a minute to reach each rank that has died, without a pause: it uses
/// a core, and a descriptor for each such rank (seen with 2.28.9, and the same in the source
/// of 2.30). Processes that outlive their peers cannot afford it, so this sets NCCL_RAS_ENABLE=0,
/// unless the user has set it. Requires that NCCL has not been called yet in this process.
void turn_off_ras();

/// The SDK tells the agent of its own communicators, so NCCL needs no plugin for it. This sets
/// NCCL_PROFILER_PLUGIN=none if it names the plugin of regroup; one of the user stays. Requires
/// that NCCL has not been called yet in this process.
void turn_off_profiler();

/// NCCL refuses two ranks of one host on one GPU. For a test that shares GPUs, this makes the
/// process look like a separate host that uses loopback TCP, unless the user has set the variables.
/// Requires that NCCL has not been called yet in this process.
void let_ranks_share_a_gpu(std::uint32_t rank);

}  // namespace regroup::cuda
