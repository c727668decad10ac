// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::cpu {

// Checks of what a caller hands in. Each throws Error `invalid_argument`.

/// Requires host memory, and for a count above zero data, aligned for its dtype.
void check_buffer(std::string_view operation, ConstTensorView buffer);
/// Requires an operator for these values; a factor needs a sum of floating-point values.
void check_reduction(std::string_view operation, Reduction reduction, DType dtype);
void check_rank(std::string_view what, std::uint32_t rank, std::uint32_t world_size);
/// Requires a rank other than this one.
void check_peer(std::string_view operation, std::uint32_t peer, std::uint32_t rank,
                std::uint32_t world_size);
/// Requires `rows` = [world_size, row.count].
void check_rows(std::string_view operation, ConstTensorView row, ConstTensorView rows,
                std::uint32_t world_size);
/// Requires two buffers [world_size, n] that do not overlap.
void check_exchange(std::string_view operation, ConstTensorView input, ConstTensorView output,
                    std::uint32_t world_size);

}  // namespace regroup::cpu
