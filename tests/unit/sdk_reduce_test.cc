// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

template <class T>
std::vector<T> reduced(ReduceOp op, std::vector<T> into, const std::vector<T>& from) {
    reduce(op, DTypeOf<T>::value, into.data(), from.data(), into.size());
    return into;
}

template <class T>
std::vector<T> divided(std::vector<T> values, std::uint32_t divisor) {
    const std::vector<T> zeroes(values.size());
    reduce(ReduceOp::avg, DTypeOf<T>::value, values.data(), zeroes.data(), values.size(), divisor);
    return values;
}

TEST(Reduce, EachOperatorIsApplied) {
    using Values = std::vector<float>;
    const Values a = {1, 5, -2};
    const Values b = {4, 3, -7};
    EXPECT_EQ(reduced(ReduceOp::sum, a, b), (Values{5, 8, -9}));
    EXPECT_EQ(reduced(ReduceOp::avg, a, b), (Values{5, 8, -9}));
    EXPECT_EQ(reduced(ReduceOp::product, a, b), (Values{4, 15, 14}));
    EXPECT_EQ(reduced(ReduceOp::min, a, b), (Values{1, 3, -7}));
    EXPECT_EQ(reduced(ReduceOp::max, a, b), (Values{4, 5, -2}));
}

TEST(Reduce, IntegersWrapAroundInTheirWidth) {
    constexpr auto kMost32 = std::numeric_limits<std::int32_t>::max();
    constexpr auto kLeast32 = std::numeric_limits<std::int32_t>::min();
    EXPECT_EQ(reduced<std::int32_t>(ReduceOp::sum, {kMost32}, {1}),
              (std::vector<std::int32_t>{kLeast32}));
    EXPECT_EQ(reduced<std::int32_t>(ReduceOp::product, {kMost32}, {2}),
              (std::vector<std::int32_t>{-2}));
    EXPECT_EQ(reduced<std::int64_t>(ReduceOp::sum, {std::numeric_limits<std::int64_t>::max()}, {1}),
              (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}));
    EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::sum, {200}, {100}), (std::vector<std::uint8_t>{44}));
    EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::product, {255}, {255}),
              (std::vector<std::uint8_t>{1}));
}

TEST(Divide, IntegersAreTruncatedTowardsZero) {
    EXPECT_EQ(divided<std::int32_t>({7, -7, 8}, 2), (std::vector<std::int32_t>{3, -3, 4}));
    EXPECT_EQ(divided<double>({7, -7}, 2), (std::vector<double>{3.5, -3.5}));
    // The divisor does not fit the type.
    EXPECT_EQ(divided<std::uint8_t>({255}, 256), (std::vector<std::uint8_t>{0}));
    EXPECT_EQ(divided<std::uint64_t>({std::numeric_limits<std::uint64_t>::max()}, 5),
              (std::vector<std::uint64_t>{0x3333333333333333U}));
}

template <class T>
class ReduceOf : public ::testing::Test {};

using AllTypes =
    ::testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t, std::int8_t,
                     std::uint32_t, std::uint64_t, float16, bfloat16, float8_e4m3fn, float8_e5m2>;
TYPED_TEST_SUITE(ReduceOf, AllTypes);

/// A number from 0 to 3: sums and products of four of them are exact in every dtype.
template <class T>
T small(std::size_t index, std::size_t source) {
    const auto number = static_cast<float>((index * 7 + source * 5) % 4);
    return static_cast<T>(number);
}

// Longer than the blocks in which it is done, and not a multiple of any vector.
constexpr std::size_t kLong = 20011;

TYPED_TEST(ReduceOf, ReductionOfManySourcesEqualsTheSerialOne) {
    using T = TypeParam;
    for (std::size_t count_of_sources = 1; count_of_sources <= 4; ++count_of_sources) {
        std::vector<std::vector<T>> values(count_of_sources, std::vector<T>(kLong));
        std::vector<const std::byte*> sources;
        for (std::size_t s = 0; s < count_of_sources; ++s) {
            for (std::size_t i = 0; i < kLong; ++i) {
                values[s][i] = small<T>(i, s);
            }
            sources.push_back(reinterpret_cast<const std::byte*>(values[s].data()));
        }
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
            std::vector<T> out(kLong);
            reduce_all(op, DTypeOf<T>::value, out.data(), sources, kLong);
            for (std::size_t i = 0; i < kLong; ++i) {
                auto expected = static_cast<float>(values[0][i]);
                for (std::size_t s = 1; s < count_of_sources; ++s) {
                    const auto next = static_cast<float>(values[s][i]);
                    expected = op == ReduceOp::sum       ? expected + next
                               : op == ReduceOp::product ? expected * next
                               : op == ReduceOp::min     ? std::min(expected, next)
                                                         : std::max(expected, next);
                }
                ASSERT_EQ(static_cast<float>(out[i]), expected)
                    << to_string(op) << " of " << count_of_sources << ", element " << i;
            }
        }
    }
}

TYPED_TEST(ReduceOf, AnySourceMayBeTheResult) {
    using T = TypeParam;
    for (std::size_t target = 0; target < 4; ++target) {
        std::vector<std::vector<T>> values(4, std::vector<T>(kLong));
        std::vector<const std::byte*> sources;
        for (std::size_t s = 0; s < values.size(); ++s) {
            for (std::size_t i = 0; i < kLong; ++i) {
                values[s][i] = small<T>(i, s);
            }
            sources.push_back(reinterpret_cast<const std::byte*>(values[s].data()));
        }
        const auto before = values;
        reduce_all(ReduceOp::avg, DTypeOf<T>::value, values[target].data(), sources, kLong, 2);
        for (std::size_t i = 0; i < kLong; ++i) {
            float sum = 0;
            for (const auto& source : before) {
                sum += static_cast<float>(source[i]);
            }
            const float half = is_floating_point(DTypeOf<T>::value) ? sum / 2 : std::floor(sum / 2);
            ASSERT_EQ(static_cast<float>(values[target][i]), half) << "element " << i;
        }
    }
}

TEST(Reduce, LowPrecisionIsRoundedOnceAtTheEnd) {
    // 2048 + 1 + 1 is 2050 if the sum is kept in float, and stays 2048 if it is rounded on the way.
    const std::vector<float16> big = {float16(2048.0F)};
    const std::vector<float16> one = {float16(1.0F)};
    const std::vector<const std::byte*> sources = {reinterpret_cast<const std::byte*>(big.data()),
                                                   reinterpret_cast<const std::byte*>(one.data()),
                                                   reinterpret_cast<const std::byte*>(one.data())};
    std::vector<float16> out(1);
    reduce_all(ReduceOp::sum, DType::float16, out.data(), sources, 1);
    EXPECT_EQ(static_cast<float>(out[0]), 2050.0F);
    // An average whose sum would overflow.
    EXPECT_EQ(static_cast<float>([] {
                  std::vector<float16> values = {float16(65504.0F)};
                  const std::vector<float16> others = values;
                  reduce(ReduceOp::avg, DType::float16, values.data(), others.data(), 1, 2);
                  return values[0];
              }()),
              65504.0F);
}

TEST(Scale, ScaleMultipliesInPlaceAndIntoAnotherBuffer) {
    std::vector<float> values(kLong, 3.0F);
    std::vector<float> out(kLong);
    scale(DType::float32, out.data(), values.data(), kLong, 0.5);
    scale(DType::float32, values.data(), values.data(), kLong, 0.5);
    EXPECT_EQ(values, std::vector<float>(kLong, 1.5F));
    EXPECT_EQ(out, values);
    std::vector<bfloat16> low(kLong, bfloat16(3.0F));
    scale(DType::bfloat16, low.data(), low.data(), kLong, 1.0 / 3.0);
    EXPECT_EQ(low, std::vector<bfloat16>(kLong, bfloat16(1.0F)));
}

TEST(Reduce, EmptyBuffersAreLeftAlone) {
    reduce(ReduceOp::sum, DType::float32, nullptr, nullptr, 0);
    reduce(ReduceOp::avg, DType::bfloat16, nullptr, nullptr, 0, 3);
    scale(DType::float32, nullptr, nullptr, 0, 2.0);
}

}  // namespace
}  // namespace regroup::cpu
