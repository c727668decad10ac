// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>

namespace regroup::cpu {

/// True for the formats that are computed in float: of 16 and 8 bits.
[[nodiscard]] constexpr bool is_low_precision(DType dtype) noexcept {
    return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float8_e4m3fn ||
           dtype == DType::float8_e5m2;
}

// Arrays of low-precision numbers to float and back; the same results as the conversions of
// low_precision.h, many at a time. Require `is_low_precision(dtype)`.

void widen(DType dtype, const void* from, float* to, std::size_t count);
/// Rounds to nearest, ties to even.
void narrow(DType dtype, const float* from, void* to, std::size_t count);

}  // namespace regroup::cpu
