// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <string_view>

namespace regroup::nccl {

/// The constants of a group and its GPU.
struct Bounds {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    Device device{};
    int compute_capability = 0;
    int nccl_version = 0;  ///< 22809 for 2.28.9.
};

/// Throws Error `invalid_argument` if `dtype` has 8 bits and NCCL or this GPU cannot reduce it.
void check_float8(std::string_view operation, DType dtype, const Bounds& bounds);

}  // namespace regroup::nccl
