// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstdint>
#include <string_view>

namespace regroup::cpu {

// Checks of what a caller hands in. Each throws Error `invalid_argument`, which costs the group
// nothing: the operation has not been issued.

/// Requires data for a count above zero, aligned for its dtype.
void check_buffer(std::string_view operation, ConstTensorView buffer);
void check_rank(std::string_view what, std::uint32_t rank, std::uint32_t world_size);
/// Requires a rank other than this one.
void check_peer(std::string_view operation, std::uint32_t peer, std::uint32_t rank,
                std::uint32_t world_size);
void check_all_gather(ConstTensorView input, ConstTensorView output, std::uint32_t world_size);

}  // namespace regroup::cpu
