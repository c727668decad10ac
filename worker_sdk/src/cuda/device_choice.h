// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace regroup::cuda {

/// The facts that decide which GPU a process gets.
struct DeviceRequest {
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    std::int32_t device_count = 0;         ///< GPUs that this process sees.
    std::optional<std::string> visible{};  ///< CUDA_VISIBLE_DEVICES, if set.
    bool share = false;                    ///< REGROUP_SHARE_GPUS.
};

/// The ordinal in this process, as cuda::device_of describes. Throws Error `invalid_argument`.
[[nodiscard]] std::int32_t choose_device(const DeviceRequest& request);

}  // namespace regroup::cuda
