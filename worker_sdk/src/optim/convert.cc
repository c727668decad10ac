// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/convert.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "rendezvous/base/ensure.h"

namespace regroup::optim {
namespace {

constexpr std::uint32_t kFloatInf = 0x7f800000U;

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

std::uint16_t narrowed_to_bfloat(std::uint32_t bits) {
    const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
    const bool is_nan = (bits & 0x7fffffffU) > kFloatInf;
    return static_cast<std::uint16_t>(is_nan ? bits >> 16U | 0x40U : rounded);
}

template <class Convert>
void widen_each(const void* from, float* __restrict to, std::size_t count, Convert convert) {
    const auto* const __restrict source = static_cast<const std::uint16_t*>(from);
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = std::bit_cast<float>(convert(source[i]));
    }
}

template <class Convert>
void narrow_each(const float* __restrict from, void* to, std::size_t count, Convert convert) {
    auto* const __restrict target = static_cast<std::uint16_t*>(to);
    for (std::size_t i = 0; i < count; ++i) {
        target[i] = convert(std::bit_cast<std::uint32_t>(from[i]));
    }
}

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
        case DType::float16:
            return widen_each(from, to, count, widened);
        case DType::bfloat16:
            return widen_each(from, to, count,
                              [](std::uint16_t bits) { return std::uint32_t{bits} << 16U; });
        default:
            ENSURE(false);
    }
}

void narrow(const float* from, DType dtype, void* to, std::size_t count) {
    switch (dtype) {
        case DType::float32:
            std::copy_n(from, count, static_cast<float*>(to));
            return;
        case DType::float16:
            return narrow_each(from, to, count, narrowed);
        case DType::bfloat16:
            return narrow_each(from, to, count, narrowed_to_bfloat);
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

}  // namespace regroup::optim
