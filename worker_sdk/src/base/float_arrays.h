// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>

namespace regroup {

/// True for the formats of 16 and 8 bits, which are computed in float.
[[nodiscard]] constexpr bool is_low_precision(DType dtype) noexcept {
    return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float8_e4m3fn ||
           dtype == DType::float8_e5m2;
}

// Conversion of arrays of `count` numbers, which do not overlap, of float32 or a low-precision
// format, to float and back. The results are those of <regroup/low_precision.h>, except for the
// bits of a NaN.

void widen(DType dtype, const void* from, float* to, std::size_t count);
/// Rounds to nearest, ties to even.
void narrow(DType dtype, const float* from, void* to, std::size_t count);

/// False if there is an inf or a NaN. For float32, float16 and bfloat16.
[[nodiscard]] bool all_finite(DType dtype, const void* values, std::size_t count);

}  // namespace regroup
