// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/low_precision_blocks.h"

#include <array>
#include <cstdint>

#include "rendezvous/base/ensure.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regroup::cpu {
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

// What almost every x86-64 processor has. The baseline does not promise it, so it is asked for.

// Unlike our own conversions these keep the payload of a NaN.
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

}  // namespace

void widen(DType dtype, const void* from, float* to, std::size_t count) {
    switch (dtype) {
        case DType::float16: {
            const auto* const halves = static_cast<const float16*>(from);
            const std::size_t done = has_f16c() ? widen_f16c(halves, to, count) : 0;
            return widen_each(halves + done, to + done, count - done);
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
        case DType::float16: {
            auto* const halves = static_cast<float16*>(to);
            const std::size_t done = has_f16c() ? narrow_f16c(from, halves, count) : 0;
            return narrow_each(from + done, halves + done, count - done);
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

}  // namespace regroup::cpu
