// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace regroup {

/// The 16-bit and 8-bit floating-point formats are storage types: compute in float; conversion
/// rounds to nearest, ties to even. Same bits as CUDA's __half and __nv_bfloat16, and as PyTorch's
/// types of the same names.
///
/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; largest value 65504.
struct float16 {
    std::uint16_t bits = 0;

    float16() = default;
    explicit float16(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(float16, float16) = default;  ///< Compares bits: NaN equals itself.
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction; float's range.
struct bfloat16 {
    std::uint16_t bits = 0;

    bfloat16() = default;
    explicit bfloat16(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(bfloat16, bfloat16) = default;
};

/// 4 bits of exponent, 3 of fraction, no infinity; largest value 448, larger values become NaN.
struct float8_e4m3fn {
    std::uint8_t bits = 0;

    float8_e4m3fn() = default;
    explicit float8_e4m3fn(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(float8_e4m3fn, float8_e4m3fn) = default;
};

/// 5 bits of exponent, 2 of fraction: the upper half of a float16.
struct float8_e5m2 {
    std::uint8_t bits = 0;

    float8_e5m2() = default;
    explicit float8_e5m2(float value) noexcept;
    explicit operator float() const noexcept;
    friend bool operator==(float8_e5m2, float8_e5m2) = default;
};

namespace detail {

/// Rounds `value` to a format with `exponent` bits of exponent and `fraction` bits of fraction.
/// `finite` formats use the top exponent for numbers and have one NaN (all ones) and no infinity.
template <int exponent, int fraction, bool finite>
constexpr std::uint32_t to_low_precision(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 31U) << (exponent + fraction);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    constexpr std::uint32_t kTop = ((1U << exponent) - 1U) << fraction;
    constexpr std::uint32_t kNan =
        finite ? (1U << (exponent + fraction)) - 1U : kTop | (1U << (fraction - 1));
    constexpr std::uint32_t kLargest = finite ? kNan - 1U : kTop - 1U;
    constexpr std::uint32_t kBeyond = finite ? kNan : kTop;
    if (magnitude > 0x7f800000U) {
        return sign | kNan;
    }
    if (magnitude == 0x7f800000U) {
        return sign | kBeyond;
    }
    constexpr int kBias = (1 << (exponent - 1)) - 1;
    const int e = static_cast<int>(magnitude >> 23U) - 127;
    std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    int drop = 23 - fraction;  // bits of the significand that have no place
    std::uint32_t base = 0;
    if (e < 1 - kBias) {  // becomes subnormal: the leading one is an ordinary bit
        drop += 1 - kBias - e;
        if (drop > 24 + 1 || (magnitude >> 23U) == 0) {
            return sign;
        }
    } else {
        base = static_cast<std::uint32_t>(e + kBias) << fraction;
        significand &= 0x7fffffU;
    }
    const std::uint32_t kept = significand >> drop;
    const std::uint32_t rest = significand & ((1U << drop) - 1U);
    const std::uint32_t half = 1U << (drop - 1);
    const std::uint32_t rounded =
        base + kept + ((rest > half || (rest == half && (kept & 1U) != 0)) ? 1U : 0U);
    return sign | (rounded > kLargest ? kBeyond : rounded);
}

template <int exponent, int fraction, bool finite>
constexpr float from_low_precision(std::uint32_t bits) noexcept {
    constexpr std::uint32_t kOnes = (1U << exponent) - 1U;
    constexpr int kBias = (1 << (exponent - 1)) - 1;
    const std::uint32_t sign = (bits >> (exponent + fraction)) << 31U;
    const std::uint32_t e = (bits >> fraction) & kOnes;
    const std::uint32_t f = bits & ((1U << fraction) - 1U);
    std::uint32_t result = 0;
    if (finite && e == kOnes && f == (1U << fraction) - 1U) {
        result = 0x7fc00000U;
    } else if (!finite && e == kOnes) {
        result = 0x7f800000U | (f << (23 - fraction));
    } else if (e == 0) {
        // Subnormal: f units of the last place, exact in a float.
        const float unit =
            std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - fraction) << 23U);
        result = std::bit_cast<std::uint32_t>(static_cast<float>(f) * unit);
    } else {
        result = (static_cast<std::uint32_t>(static_cast<int>(e) - kBias + 127) << 23U) |
                 (f << (23 - fraction));
    }
    return std::bit_cast<float>(sign | result);
}

}  // namespace detail

inline float16::float16(float value) noexcept
    : bits(static_cast<std::uint16_t>(detail::to_low_precision<5, 10, false>(value))) {}
inline float16::operator float() const noexcept {
    return detail::from_low_precision<5, 10, false>(bits);
}
inline bfloat16::bfloat16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    bits = static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U
                                          ? (word >> 16U) | 0x40U
                                          : (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
}
inline bfloat16::operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}
inline float8_e4m3fn::float8_e4m3fn(float value) noexcept
    : bits(static_cast<std::uint8_t>(detail::to_low_precision<4, 3, true>(value))) {}
inline float8_e4m3fn::operator float() const noexcept {
    return detail::from_low_precision<4, 3, true>(bits);
}
inline float8_e5m2::float8_e5m2(float value) noexcept
    : bits(static_cast<std::uint8_t>(detail::to_low_precision<5, 2, false>(value))) {}
inline float8_e5m2::operator float() const noexcept {
    return detail::from_low_precision<5, 2, false>(bits);
}

}  // namespace regroup
