// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "network.h"

namespace mnist {

// Kernels in CUDA's default stream, on the current GPU. Each returns the cudaError_t as a number.

/// Makes probabilities of `outputs` [count, 10] in place, and scores each sample.
[[nodiscard]] int launch_cross_entropy(float* outputs, const std::int32_t* labels, int count,
                                       Score* scores);
/// d loss / d output = weight * (probability - (1 for the label)), in place.
[[nodiscard]] int launch_cross_entropy_backward(float* probabilities, const std::int32_t* labels,
                                                int count, float weight);

}  // namespace mnist
