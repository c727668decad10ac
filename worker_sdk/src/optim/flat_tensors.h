// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>

namespace regroup::optim {

/// The moments of each tensor begin at a multiple of so many elements, for wide loads.
inline constexpr std::size_t kMomentAlignment = 16;

/// The moments of a tensor of `count` elements, with padding.
[[nodiscard]] constexpr std::size_t padded_count(std::size_t count) noexcept {
    return (count + kMomentAlignment - 1) / kMomentAlignment * kMomentAlignment;
}

/// One OptimizerTensors and its moments, as the loops and kernels take them. Of equal count, none
/// overlaps another.
struct FlatTensors {
    float* master = nullptr;
    const void* gradient = nullptr;
    void* shadow = nullptr;  ///< Null without one.
    float* moments[2] = {};  ///< Null beyond those that the rule has.
    std::size_t count = 0;
    DType gradient_dtype = DType::float32;
    DType shadow_dtype = DType::float32;
};

}  // namespace regroup::optim
