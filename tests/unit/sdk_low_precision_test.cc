// SPDX-License-Identifier: Apache-2.0
// Every bit pattern of the low-precision formats, against a reference that is slow and plain: the
// format's numbers in order, and the nearest of them found by exact arithmetic in double.
#include <regroup/low_precision.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/base/float_arrays.h"

namespace regroup {
namespace {

template <class T>
struct Format;
template <>
struct Format<float16> {
    static constexpr int kExponent = 5;
    static constexpr int kFraction = 10;
    static constexpr bool kInfinity = true;
    static constexpr float kLargest = 65504.0F;
};
template <>
struct Format<bfloat16> {
    static constexpr int kExponent = 8;
    static constexpr int kFraction = 7;
    static constexpr bool kInfinity = true;
    static constexpr float kLargest = 3.38953139e38F;
};
template <>
struct Format<float8_e4m3fn> {
    static constexpr int kExponent = 4;
    static constexpr int kFraction = 3;
    static constexpr bool kInfinity = false;
    static constexpr float kLargest = 448.0F;
};
template <>
struct Format<float8_e5m2> {
    static constexpr int kExponent = 5;
    static constexpr int kFraction = 2;
    static constexpr bool kInfinity = true;
    static constexpr float kLargest = 57344.0F;
};

template <class T>
class LowPrecision : public ::testing::Test {
   protected:
    using F = Format<T>;
    static constexpr std::uint32_t kSign = 1U << (F::kExponent + F::kFraction);

    static T from_bits(std::uint32_t bits) {
        T value;
        value.bits = static_cast<decltype(value.bits)>(bits);
        return value;
    }
    /// The value of the bits by IEEE 754, without the sign. Beyond the largest number it is the
    /// next value of an unlimited range, so that rounding can be checked there too.
    static double magnitude(std::uint32_t bits) {
        const int e = static_cast<int>(bits >> F::kFraction);
        const int bias = (1 << (F::kExponent - 1)) - 1;
        const auto f = static_cast<double>(bits & ((1U << F::kFraction) - 1U));
        const double unit = std::ldexp(1.0, -F::kFraction);
        return e == 0 ? std::ldexp(f * unit, 1 - bias) : std::ldexp(1.0 + f * unit, e - bias);
    }
    /// The first magnitude that is no number: infinity, or the only NaN.
    static constexpr std::uint32_t kBeyond =
        F::kInfinity ? ((1U << F::kExponent) - 1U) << F::kFraction : kSign - 1U;
    static bool is_nan(std::uint32_t bits) {
        return F::kInfinity ? (bits & (kSign - 1U)) > kBeyond : (bits & (kSign - 1U)) == kBeyond;
    }

    /// To nearest, ties to even.
    static std::uint32_t rounded(float value) {
        const std::uint32_t sign = std::signbit(value) ? kSign : 0U;
        const double wanted = std::fabs(static_cast<double>(value));
        std::uint32_t low = 0;  // The largest pattern that is not above `wanted`.
        for (std::uint32_t bit = kSign >> 1U; bit != 0; bit >>= 1U) {
            if ((low | bit) <= kBeyond && magnitude(low | bit) <= wanted) {
                low |= bit;
            }
        }
        if (low == kBeyond) {
            return sign | low;
        }
        const double below = wanted - magnitude(low);
        const double above = magnitude(low + 1) - wanted;
        const bool up = above < below || (above == below && (low & 1U) != 0);
        return sign | (low + (up ? 1U : 0U));
    }

    static void expect_rounded(float value) {
        ASSERT_EQ(T(value).bits, rounded(value)) << std::hexfloat << value;
    }
};

using Formats = ::testing::Types<float16, bfloat16, float8_e4m3fn, float8_e5m2>;
TYPED_TEST_SUITE(LowPrecision, Formats);

TYPED_TEST(LowPrecision, EveryBitPatternSurvivesARoundTrip) {
    for (std::uint32_t bits = 0; bits < 2 * this->kSign; ++bits) {
        const TypeParam number = this->from_bits(bits);
        const auto value = static_cast<float>(number);
        if (this->is_nan(bits)) {
            EXPECT_TRUE(std::isnan(value));
            EXPECT_TRUE(this->is_nan(TypeParam(value).bits));
            continue;
        }
        const std::uint32_t magnitude = bits & (this->kSign - 1U);
        ASSERT_EQ(std::signbit(value), bits >= this->kSign);
        if (magnitude == this->kBeyond) {
            ASSERT_TRUE(std::isinf(value));
        } else {
            ASSERT_EQ(std::fabs(static_cast<double>(value)), this->magnitude(magnitude)) << bits;
        }
        ASSERT_EQ(TypeParam(value), number) << bits;
    }
}

TYPED_TEST(LowPrecision, ValuesAreRoundedToTheNearestNeighbour) {
    for (std::uint32_t bits = 0; bits < this->kBeyond; ++bits) {
        const double low = this->magnitude(bits);
        const double high = this->magnitude(bits + 1);
        // The tie itself, for which float has room, and its own neighbours.
        const auto tie = static_cast<float>((low + high) / 2);
        for (const float value : {tie, std::nextafter(tie, 0.0F),
                                  std::nextafter(tie, std::numeric_limits<float>::infinity()),
                                  static_cast<float>(low + (high - low) / 4)}) {
            this->expect_rounded(value);
            this->expect_rounded(-value);
        }
    }
}

TYPED_TEST(LowPrecision, EveryExponentOfAFloatIsRounded) {
    for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
        for (const std::uint32_t fraction :
             {0U, 1U, 0x3fffffU, 0x400000U, 0x400001U, 0x7fffffU, 0x2aaaaaU, 0x555555U}) {
            const auto value = std::bit_cast<float>((exponent << 23U) | fraction);
            this->expect_rounded(value);
            this->expect_rounded(-value);
        }
    }
}

TYPED_TEST(LowPrecision, EndsOfTheRangeAreThoseOfTheFormat) {
    using F = Format<TypeParam>;
    EXPECT_EQ(static_cast<float>(TypeParam(F::kLargest)), F::kLargest);
    const auto beyond = static_cast<float>(TypeParam(std::numeric_limits<float>::infinity()));
    const auto overflown = static_cast<float>(TypeParam(std::numeric_limits<float>::max()));
    if (F::kInfinity) {
        EXPECT_TRUE(std::isinf(beyond));
        EXPECT_TRUE(std::isinf(overflown));
    } else {
        EXPECT_TRUE(std::isnan(beyond));
        EXPECT_TRUE(std::isnan(overflown));
    }
    EXPECT_TRUE(this->is_nan(TypeParam(std::numeric_limits<float>::quiet_NaN()).bits));
    EXPECT_EQ(TypeParam(-0.0F).bits, this->kSign);
}

TYPED_TEST(LowPrecision, ArraysAreConvertedLikeSingleNumbers) {
    constexpr DType kDType = DTypeOf<TypeParam>::value;
    std::vector<TypeParam> numbers;
    std::vector<float> values;
    for (std::uint32_t bits = 0; bits < 2 * this->kSign; ++bits) {
        numbers.push_back(this->from_bits(bits));
        const auto value = static_cast<float>(numbers.back());
        values.push_back(value);
        values.push_back(std::nextafter(value * 1.01F, 0.0F));
    }
    numbers.resize(numbers.size() - 3);  // No multiple of a vector.
    std::vector<float> widened(numbers.size());
    widen(kDType, numbers.data(), widened.data(), numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto expected = static_cast<float>(numbers[i]);
        ASSERT_TRUE(widened[i] == expected || (std::isnan(widened[i]) && std::isnan(expected)))
            << i;
    }
    std::vector<TypeParam> narrowed(values.size());
    narrow(kDType, values.data(), narrowed.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i])) {
            ASSERT_TRUE(this->is_nan(narrowed[i].bits));
        } else {
            ASSERT_EQ(narrowed[i], TypeParam(values[i])) << std::hexfloat << values[i];
        }
    }
}

}  // namespace
}  // namespace regroup
