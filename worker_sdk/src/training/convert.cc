// SPDX-License-Identifier: Apache-2.0
// Plain loops that compilers vectorise, but for float16: without the instructions that most
// processors have for it, a value costs tens of operations.
#include "worker_sdk/src/training/convert.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "rendezvous/base/ensure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regroup::training {
namespace {

// Branch-free, unlike the type's own conversion, so that it becomes vector code.
std::uint16_t to_bfloat16_bits(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet_nan = (word >> 16U) | 0x40U;
    const bool is_nan = (word & 0x7fffffffU) > 0x7f800000U;
    return static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded);
}

template <class Wide>
void narrow_to_bfloat16(const Wide* __restrict from, std::uint16_t* __restrict to,
                        std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = to_bfloat16_bits(static_cast<float>(from[i] * static_cast<Wide>(factor)));
    }
}

template <class Wide>
void widen_from_bfloat16(const std::uint16_t* __restrict from, Wide* __restrict to,
                         std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16U);
        to[i] = static_cast<Wide>(value) * static_cast<Wide>(factor);
    }
}

template <class Wide>
void narrow_to_float16(const Wide* from, float16* to, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = float16(static_cast<float>(from[i] * static_cast<Wide>(factor)));
    }
}

template <class Wide>
void widen_from_float16(const float16* from, Wide* to, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<Wide>(static_cast<float>(from[i])) * static_cast<Wide>(factor);
    }
}

#if defined(__x86_64__)
constexpr std::size_t kLanes = 8;

bool has_f16c() {
    return __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
}

// Both return how many values they have converted: a multiple of kLanes.
__attribute__((target("avx,f16c"))) std::size_t narrow_vectors(const float* from, float16* to,
                                                               std::size_t count, float factor) {
    const __m256 factors = _mm256_set1_ps(factor);
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const __m256 values = _mm256_mul_ps(_mm256_loadu_ps(from + i), factors);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

__attribute__((target("avx,f16c"))) std::size_t widen_vectors(const float16* from, float* to,
                                                              std::size_t count, float factor) {
    const __m256 factors = _mm256_set1_ps(factor);
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_ps(to + i, _mm256_mul_ps(_mm256_cvtph_ps(bits), factors));
    }
    return i;
}
#else
bool has_f16c() {
    return false;
}
std::size_t narrow_vectors(const float*, float16*, std::size_t, float) {
    return 0;
}
std::size_t widen_vectors(const float16*, float*, std::size_t, float) {
    return 0;
}
#endif

void narrow(const float* from, float16* to, std::size_t count, float factor) {
    const std::size_t done = has_f16c() ? narrow_vectors(from, to, count, factor) : 0;
    narrow_to_float16(from + done, to + done, count - done, factor);
}

void widen(const float16* from, float* to, std::size_t count, float factor) {
    const std::size_t done = has_f16c() ? widen_vectors(from, to, count, factor) : 0;
    widen_from_float16(from + done, to + done, count - done, factor);
}

void narrow(const double* from, float16* to, std::size_t count, float factor) {
    narrow_to_float16(from, to, count, factor);
}

void widen(const float16* from, double* to, std::size_t count, float factor) {
    widen_from_float16(from, to, count, factor);
}

template <class Wide>
void narrow_values(const void* from, TensorView to, float factor) {
    const Wide* const values = static_cast<const Wide*>(from);
    if (to.dtype == DType::bfloat16) {
        return narrow_to_bfloat16(values, static_cast<std::uint16_t*>(to.data), to.count, factor);
    }
    ENSURE(to.dtype == DType::float16);
    narrow(values, static_cast<float16*>(to.data), to.count, factor);
}

template <class Wide>
void widen_values(ConstTensorView from, void* to, float factor) {
    Wide* const values = static_cast<Wide*>(to);
    if (from.dtype == DType::bfloat16) {
        return widen_from_bfloat16(static_cast<const std::uint16_t*>(from.data), values, from.count,
                                   factor);
    }
    ENSURE(from.dtype == DType::float16);
    widen(static_cast<const float16*>(from.data), values, from.count, factor);
}

}  // namespace

void convert_values(ConstTensorView from, TensorView to, float factor, Stream stream) {
    ENSURE(from.count == to.count && from.device == to.device);
    if (from.device.kind == DeviceKind::cuda) {
        convert_values_on_gpu(from, to, factor, stream);
    } else if (from.dtype == DType::float32) {
        narrow_values<float>(from.data, to, factor);
    } else if (from.dtype == DType::float64) {
        narrow_values<double>(from.data, to, factor);
    } else if (to.dtype == DType::float32) {
        widen_values<float>(from, to.data, factor);
    } else {
        ENSURE(to.dtype == DType::float64);
        widen_values<double>(from, to.data, factor);
    }
}

}  // namespace regroup::training
