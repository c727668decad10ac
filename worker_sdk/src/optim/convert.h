// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>

namespace regroup::optim {

// Arrays of `count` elements that do not overlap, of dtype float32, float16 or bfloat16. The same
// values as the conversions of <regroup/low_precision.h>, but free of branches, which compilers
// vectorise.

void widen(DType dtype, const void* from, float* to, std::size_t count);
void narrow(const float* from, DType dtype, void* to, std::size_t count);

/// False if there is an inf or a NaN.
[[nodiscard]] bool all_finite(DType dtype, const void* values, std::size_t count);

}  // namespace regroup::optim
