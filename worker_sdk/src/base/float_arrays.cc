// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/float_arrays.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "rendezvous/base/ensure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regroup {
namespace {

template <class T>
void widen_each(const T* __restrict from, float* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<float>(from[i]);
    }
}

template <class T>
void narrow_each(const float* __restrict from, T* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = T(from[i]);
    }
}

constexpr std::uint32_t kFloatInf = 0x7f800000U;

// Free of branches, so that compilers vectorise them; the conversions of low_precision.h are not.
// Scaling by a power of two moves the exponent of normal and subnormal numbers alike, and is exact.
std::uint32_t widened(std::uint16_t half) {
    const std::uint32_t magnitude = half & 0x7fffU;
    const auto value = std::bit_cast<float>(magnitude << 13U) * 0x1.0p112F;
    const std::uint32_t top = magnitude >= 0x7c00U ? kFloatInf : 0U;
    return std::bit_cast<std::uint32_t>(value) | top | (half & 0x8000U) << 16U;
}

std::uint16_t narrowed(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Normal: rebias the exponent; half a unit of the last place, or just less, rounds. A carry
    // out of the fraction goes into the exponent, at the top of the range up to infinity.
    const std::uint32_t odd = magnitude >> 13U & 1U;
    const std::uint32_t normal = (magnitude - (112U << 23U) + 0xfffU + odd) >> 13U;
    // Subnormal: in a float around 0.5 the last place is the half's 2^-24, so adding rounds there.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U;
    std::uint32_t result = magnitude < (113U << 23U) ? subnormal : normal;
    result = magnitude >= (143U << 23U) ? 0x7c00U : result;
    result = magnitude > kFloatInf ? 0x7e00U : result;
    return static_cast<std::uint16_t>(result | (bits >> 16U & 0x8000U));
}

void widen_halves(const float16* __restrict from, float* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = std::bit_cast<float>(widened(from[i].bits));
    }
}

void narrow_halves(const float* __restrict from, float16* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i].bits = narrowed(std::bit_cast<std::uint32_t>(from[i]));
    }
}

/// All 256 values of an 8-bit format.
template <class T>
void widen_by_table(const T* __restrict from, float* __restrict to, std::size_t count) {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> values{};
        for (unsigned bits = 0; bits < values.size(); ++bits) {
            T number;
            number.bits = static_cast<std::uint8_t>(bits);
            values[bits] = static_cast<float>(number);
        }
        return values;
    }();
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = table[from[i].bits];
    }
}

#if defined(__x86_64__)

// Almost every x86-64 processor has these instructions. The baseline does not include them, so they
// are checked at run time.
bool has_f16c() {
    static const bool answer = __builtin_cpu_supports("f16c") != 0;
    return answer;
}

__attribute__((target("avx,f16c"))) std::size_t widen_f16c(const float16* from, float* to,
                                                           std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    return i;
}

__attribute__((target("avx,f16c"))) std::size_t narrow_f16c(const float* from, float16* to,
                                                            std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i halves =
            _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
    }
    return i;
}

bool has_avx2() {
    static const bool answer = __builtin_cpu_supports("avx2") != 0;
    return answer;
}

/// Eight floats as the 16 bits of their bfloat16s, each in a word: see bfloat16's constructor.
__attribute__((target("avx2"))) inline __m256i bfloat16_bits(__m256i words) {
    const __m256i upper = _mm256_srli_epi32(words, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(words, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i magnitude = _mm256_and_si256(words, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

__attribute__((target("avx2"))) std::size_t narrow_avx2(const float* from, bfloat16* to,
                                                        std::size_t count) {
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const auto* const words = reinterpret_cast<const __m256i*>(from + i);
        const __m256i packed = _mm256_packus_epi32(bfloat16_bits(_mm256_loadu_si256(words)),
                                                   bfloat16_bits(_mm256_loadu_si256(words + 1)));
        // Packing goes by halves of a register: the middle quarters have to change places.
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm256_permute4x64_epi64(packed, 0xd8));
    }
    return i;
}

#else

constexpr bool has_avx2() {
    return false;
}
std::size_t narrow_avx2(const float*, bfloat16*, std::size_t) {
    return 0;
}
constexpr bool has_f16c() {
    return false;
}
std::size_t widen_f16c(const float16*, float*, std::size_t) {
    return 0;
}
std::size_t narrow_f16c(const float*, float16*, std::size_t) {
    return 0;
}

#endif

// In blocks, so that the inner loop has no way out and an overflow still ends the search.
template <class Word>
bool all_below(const void* values, std::size_t count, Word magnitude, Word limit) {
    constexpr std::size_t kBlock = 4096;
    const auto* const words = static_cast<const Word*>(values);
    for (std::size_t first = 0; first < count; first += kBlock) {
        const std::size_t last = std::min(count, first + kBlock);
        Word beyond = 0;
        for (std::size_t i = first; i < last; ++i) {
            const auto rest = static_cast<Word>(words[i] & magnitude);
            beyond = static_cast<Word>(beyond | static_cast<Word>(rest >= limit ? 1 : 0));
        }
        if (beyond != 0) {
            return false;
        }
    }
    return true;
}

}  // namespace

void widen(DType dtype, const void* from, float* to, std::size_t count) {
    switch (dtype) {
        case DType::float32:
            std::copy_n(static_cast<const float*>(from), count, to);
            return;
        case DType::float16: {
            const auto* const halves = static_cast<const float16*>(from);
            const std::size_t done = has_f16c() ? widen_f16c(halves, to, count) : 0;
            return widen_halves(halves + done, to + done, count - done);
        }
        case DType::bfloat16:
            return widen_each(static_cast<const bfloat16*>(from), to, count);
        case DType::float8_e4m3fn:
            return widen_by_table(static_cast<const float8_e4m3fn*>(from), to, count);
        case DType::float8_e5m2:
            return widen_by_table(static_cast<const float8_e5m2*>(from), to, count);
        default:
            ENSURE(false);
    }
}

void narrow(DType dtype, const float* from, void* to, std::size_t count) {
    switch (dtype) {
        case DType::float32:
            std::copy_n(from, count, static_cast<float*>(to));
            return;
        case DType::float16: {
            auto* const halves = static_cast<float16*>(to);
            const std::size_t done = has_f16c() ? narrow_f16c(from, halves, count) : 0;
            return narrow_halves(from + done, halves + done, count - done);
        }
        case DType::bfloat16: {
            auto* const numbers = static_cast<bfloat16*>(to);
            const std::size_t done = has_avx2() ? narrow_avx2(from, numbers, count) : 0;
            return narrow_each(from + done, numbers + done, count - done);
        }
        case DType::float8_e4m3fn:
            return narrow_each(from, static_cast<float8_e4m3fn*>(to), count);
        case DType::float8_e5m2:
            return narrow_each(from, static_cast<float8_e5m2*>(to), count);
        default:
            ENSURE(false);
    }
}

bool all_finite(DType dtype, const void* values, std::size_t count) {
    switch (dtype) {
        case DType::float32:
            return all_below<std::uint32_t>(values, count, 0x7fffffffU, kFloatInf);
        case DType::float16:
            return all_below<std::uint16_t>(values, count, 0x7fffU, 0x7c00U);
        case DType::bfloat16:
            return all_below<std::uint16_t>(values, count, 0x7fffU, 0x7f80U);
        default:
            ENSURE(false);
            return false;
    }
}

}  // namespace regroup
