// SPDX-License-Identifier: Apache-2.0
#include <regroup/exact_sum.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"

namespace regroup {
namespace {

using Limits = std::numeric_limits<double>;

double sum_of(const std::vector<double>& values) {
    ExactSum sum;
    for (const double value : values) {
        sum.add(value);
    }
    return sum.value();
}

/// Any finite double at all: every bit pattern is equally likely.
double any_double(std::mt19937_64& random) {
    for (;;) {
        const auto value = std::bit_cast<double>(random());
        if (std::isfinite(value)) {
            return value;
        }
    }
}

TEST(ExactSum, SumOfOneValueIsThatValue) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 100'000; ++i) {
        const double value = any_double(random);
        ASSERT_EQ(sum_of({value}), value);
    }
    for (const double value : {0.0, Limits::denorm_min(), -Limits::denorm_min(), Limits::min(),
                               Limits::max(), Limits::lowest(), 1.0, -1.0}) {
        EXPECT_EQ(sum_of({value}), value);
    }
}

// A single addition of two doubles is rounded correctly by every machine of IEEE 754.
TEST(ExactSum, TwoValuesAreRoundedAsTheMachineRoundsThem) {
    std::mt19937_64 random(2);
    for (int i = 0; i < 300'000; ++i) {
        const double a = any_double(random);
        // Near in magnitude, so that the sum needs rounding, and cancels now and then.
        const double b =
            std::ldexp(any_double(random) < 0 ? -a : a, static_cast<int>(random() % 120) - 60) *
            (1.0 + static_cast<double>(random() % 1024) * 0x1.0p-52);
        if (std::isfinite(b) && std::isfinite(a + b)) {
            ASSERT_EQ(sum_of({a, b}), a + b) << a << " + " << b;
        }
    }
}

TEST(ExactSum, SmallValuesSurviveBesideLargeOnes) {
    EXPECT_EQ(sum_of({1e308, 1.0, -1e308}), 1.0);
    EXPECT_EQ(sum_of({1e308, 1e308, -1e308, -1e308, Limits::denorm_min()}), Limits::denorm_min());
    EXPECT_EQ(sum_of(std::vector<double>(10, 0.1)), 1.0);
    EXPECT_EQ(sum_of({0x1.0p53, 1.0}), 0x1.0p53);                     // a tie goes to the even one
    EXPECT_EQ(sum_of({0x1.0p53, 1.0, 0x1.0p-1074}), 0x1.0p53 + 2.0);  // just above the tie
    EXPECT_EQ(sum_of({-0x1.0p53, -1.0, -0x1.0p-1074}), -0x1.0p53 - 2.0);
}

TEST(ExactSum, OrderMakesNoDifference) {
    std::mt19937_64 random(3);
    std::vector<double> values;
    for (int i = 0; i < 1000; ++i) {
        values.push_back(any_double(random));
        values.push_back(-values.back() * (1.0 - 0x1.0p-53));
    }
    const double expected = sum_of(values);
    EXPECT_TRUE(std::isfinite(expected));
    for (int i = 0; i < 20; ++i) {
        std::shuffle(values.begin(), values.end(), random);
        ASSERT_EQ(sum_of(values), expected);
    }
}

TEST(ExactSum, SpecialValuesFollowOrdinaryAddition) {
    const double infinity = Limits::infinity();
    EXPECT_EQ(sum_of({1.0, infinity}), infinity);
    EXPECT_EQ(sum_of({-infinity, Limits::max()}), -infinity);
    EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
    EXPECT_TRUE(std::isnan(sum_of({1.0, Limits::quiet_NaN()})));
    EXPECT_EQ(sum_of({Limits::max(), Limits::max()}), infinity);
    EXPECT_EQ(sum_of({}), 0.0);
}

TEST(ExactSum, PartsAddUpToTheWhole) {
    std::mt19937_64 random(4);
    ExactSum whole;
    std::vector<ExactSum> parts(7);
    for (std::size_t i = 0; i < 5000; ++i) {
        const double value = any_double(random);
        whole.add(value);
        parts[i % parts.size()].add(value);
    }
    ExactSum sum;
    for (const ExactSum& part : parts) {
        sum.add(part);
    }
    EXPECT_EQ(sum.value(), whole.value());
}

TEST(ExactSum, RanksAddUpToTheWholeOnEveryRank) {
    std::mt19937_64 random(5);
    std::vector<double> values(999);
    std::ranges::generate(values, [&] { return any_double(random) * 1e-10; });
    for (const std::uint32_t world_size : {1U, 2U, 3U, 5U}) {
        testing::run_ranks(world_size, [&](ProcessGroup& group) {
            std::vector<ExactSum> sums(2);
            for (std::size_t i = group.rank(); i < values.size(); i += world_size) {
                sums[0].add(values[i]);
                sums[1].add(-1.5);
            }
            sum_over_ranks(group, sums);
            EXPECT_EQ(sums[0].value(), sum_of(values));
            EXPECT_EQ(sums[1].value(), -1.5 * 999);
        });
    }
}

}  // namespace
}  // namespace regroup
