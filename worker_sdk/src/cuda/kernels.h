// SPDX-License-Identifier: Apache-2.0
// Kernels that several parts of the SDK use, behind plain functions: nothing of CUDA is needed to
// include this.
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>

namespace regroup::cuda {

/// Puts `to[i] = from[i] * factor`, rounded to nearest, into `stream` (a cudaStream_t) of the
/// current GPU. Both of float64, float32, float16 or bfloat16; a 16-bit number is what the float
/// nearest to the product is rounded to. Fastest if both begin at multiples of 32 bytes. Returns
/// the cudaError_t as a number: 0, or why nothing was put there.
[[nodiscard]] int launch_cast(const void* from, DType from_dtype, void* to, DType to_dtype,
                              std::size_t count, float factor, void* stream);

/// Puts `to[i] = from[i] * factor` into `stream` of the current GPU, for float8_e4m3fn or
/// float8_e5m2. `factor` is rounded to that type first, as NCCL does; results beyond the largest
/// value become the largest value. Returns as launch_cast.
[[nodiscard]] int launch_scale_float8(const void* from, void* to, DType dtype, std::size_t count,
                                      float factor, void* stream);

}  // namespace regroup::cuda
