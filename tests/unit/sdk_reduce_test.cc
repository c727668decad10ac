// SPDX-License-Identifier: Apache-2.0
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
    divide(DTypeOf<T>::value, values.data(), values.size(), divisor);
    return values;
}

TEST(Reduce, AppliesEachOperator) {
    using Values = std::vector<float>;
    const Values a = {1, 5, -2};
    const Values b = {4, 3, -7};
    EXPECT_EQ(reduced(ReduceOp::sum, a, b), (Values{5, 8, -9}));
    EXPECT_EQ(reduced(ReduceOp::avg, a, b), (Values{5, 8, -9}));
    EXPECT_EQ(reduced(ReduceOp::product, a, b), (Values{4, 15, 14}));
    EXPECT_EQ(reduced(ReduceOp::min, a, b), (Values{1, 3, -7}));
    EXPECT_EQ(reduced(ReduceOp::max, a, b), (Values{4, 5, -2}));
}

TEST(Reduce, WrapsIntegersAroundInTheirOwnWidth) {
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

TEST(Divide, TruncatesIntegersTowardsZero) {
    EXPECT_EQ(divided<std::int32_t>({7, -7, 8}, 2), (std::vector<std::int32_t>{3, -3, 4}));
    EXPECT_EQ(divided<double>({7, -7}, 2), (std::vector<double>{3.5, -3.5}));
    // The divisor does not fit the type.
    EXPECT_EQ(divided<std::uint8_t>({255}, 256), (std::vector<std::uint8_t>{0}));
}

TEST(Reduce, OfNothingTouchesNothing) {
    reduce(ReduceOp::sum, DType::float32, nullptr, nullptr, 0);
    divide(DType::float32, nullptr, 0, 3);
}

}  // namespace
}  // namespace regroup::cpu
