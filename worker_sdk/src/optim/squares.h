// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regroup::optim {

// The order in which squares are added up, on the CPU and on a GPU: lane i of a chunk adds up
// elements i, i + kSquaresLanes, and so on; then each half of the lanes is added to the other half,
// until one is left.
inline constexpr std::size_t kSquaresLanes = 256;
inline constexpr std::size_t kSquaresChunk = 16 * kSquaresLanes;

}  // namespace regroup::optim
