// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cluster_check {

/// Multiplies the matrices `a` and `b` of [size, size] floats on GPU `device`, `rounds` times, and
/// compares each product with `expected`, bit by bit. All three lie in host memory. Returns the
/// number of elements that differed in any round. Throws regroup::Error `system` for an error of
/// CUDA, `invalid_argument` in a build without CUDA.
[[nodiscard]] std::size_t wrong_elements_on_gpu(int device, const float* a, const float* b,
                                                const float* expected, std::size_t size,
                                                int rounds);

}  // namespace cluster_check
