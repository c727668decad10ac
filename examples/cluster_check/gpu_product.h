// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <cstddef>

namespace cluster_check {

/// Multiplies the matrices `a` and `b` of [size, size] floats on GPU `device`, `rounds` times, and
/// compares each product with `expected`, bit by bit. All three lie in host memory. Returns the
/// number of elements that differed in any round. Throws regroup::Error `system` for an error of
/// CUDA, `invalid_argument` in a build without CUDA.
#ifdef CLUSTER_CHECK_WITH_CUDA
[[nodiscard]] std::size_t wrong_elements_on_gpu(int device, const float* a, const float* b,
                                                const float* expected, std::size_t size,
                                                int rounds);
#else
[[nodiscard]] inline std::size_t wrong_elements_on_gpu(int, const float*, const float*,
                                                       const float*, std::size_t, int) {
    throw regroup::Error(regroup::Errc::invalid_argument,
                         "cluster_check was built without CUDA: it cannot compute on a GPU");
}
#endif

}  // namespace cluster_check
