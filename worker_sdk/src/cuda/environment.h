// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace regroup::cuda {

/// The variables that bear on GPUs and NCCL. Set to nothing counts as not set, except for
/// CUDA_VISIBLE_DEVICES, where it hides every GPU.
struct Environment {
    std::optional<std::string> visible_devices{};  ///< CUDA_VISIBLE_DEVICES.
    std::optional<std::string> nccl_library{};     ///< REGROUP_NCCL_LIBRARY.
    std::optional<std::string> nccl_comm_id{};     ///< NCCL_COMM_ID.
    bool share_gpus = false;                       ///< REGROUP_SHARE_GPUS=1.

    [[nodiscard]] static Environment read();
};

/// NCCL refuses two ranks of one host on one GPU. For a test that shares GPUs, makes this process
/// look like a host of its own, talking over loopback TCP, as far as the user has not said
/// otherwise. Requires that NCCL has not been called yet in this process.
void let_ranks_share_a_gpu(std::uint32_t rank);

}  // namespace regroup::cuda
