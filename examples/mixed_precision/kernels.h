// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "model.h"

namespace mixed_precision {

// Kernels in CUDA's default stream, on the current GPU. `dtype` is that of the untyped pointers:
// float32, float16 or bfloat16. Each returns the cudaError_t as a number.

/// to[i] = from[i], rounded to nearest.
[[nodiscard]] int launch_round(const float* from, void* to, DType dtype, std::size_t count);
[[nodiscard]] int launch_widen(const void* from, DType dtype, float* to, std::size_t count);

/// values [rows, columns] += bias [columns], and relu if wanted; in place.
[[nodiscard]] int launch_bias(void* values, const void* bias, DType dtype, std::size_t rows,
                              std::size_t columns, bool relu);
/// by_values = 0 where values are not positive.
[[nodiscard]] int launch_relu_backward(const void* values, void* by_values, DType dtype,
                                       std::size_t count);
/// by_bias [columns], of `bias_dtype`, = the sums over the rows, added up in float32.
[[nodiscard]] int launch_bias_backward(const void* by_values, DType dtype, std::size_t rows,
                                       std::size_t columns, void* by_bias, DType bias_dtype);

/// The input of the loss for a batch.
struct LossInput {
    const void* scores = nullptr;  ///< [count, classes]
    DType dtype = DType::float32;
    const std::int32_t* labels = nullptr;  ///< [count]
    std::size_t count = 0;
    std::size_t classes = 0;
};
/// Adds the samples to `totals`.
[[nodiscard]] int launch_loss(const LossInput& input, Totals* totals);
/// by_scores = weight * *scale * (softmax - (1 for the label)). May be the scores themselves.
[[nodiscard]] int launch_loss_backward(const LossInput& input, float weight, const float* scale,
                                       void* by_scores);

}  // namespace mixed_precision
