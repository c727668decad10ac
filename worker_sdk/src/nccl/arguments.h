// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <string_view>

namespace regroup::nccl {

/// The group, as far as arguments are checked against it.
struct Bounds {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    Device device{};
    int compute_capability = 0;
    int nccl_version = 0;  ///< 22809 for 2.28.9.
};

// Checks of what a caller hands in. Each throws Error `invalid_argument`, which costs the group
// nothing: the operation has not been issued.

/// Requires data on the group's GPU for a count above zero, aligned for its dtype.
void check_buffer(std::string_view operation, ConstTensorView buffer, const Bounds& bounds);
/// Requires that the reduction exists for the dtype on this GPU.
void check_reduction(std::string_view operation, const Reduction& reduction, DType dtype,
                     const Bounds& bounds);
void check_root(std::string_view operation, std::uint32_t root, const Bounds& bounds);
/// Requires a rank other than this one.
void check_peer(std::string_view operation, std::uint32_t peer, const Bounds& bounds);
/// Requires that `whole` is one `row` for each rank.
void check_rows(std::string_view operation, ConstTensorView row, ConstTensorView whole,
                const Bounds& bounds);
/// Requires that `input` and `output` hold equally many values, a whole row for each rank, and do
/// not overlap.
void check_exchange(std::string_view operation, ConstTensorView input, ConstTensorView output,
                    const Bounds& bounds);

}  // namespace regroup::nccl
