// SPDX-License-Identifier: Apache-2.0
// Gradients that travel in 16 bits.
#include <regroup/distributed_data_parallel.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/ddp/convert.h"

namespace regroup {
namespace {

// Values of all magnitudes, subnormal, infinite and not a number among them.
std::vector<float> all_kinds_of_values() {
    std::vector<float> values{0.0F,
                              -0.0F,
                              1.0F,
                              65504.0F,
                              65520.0F,
                              1e30F,
                              0x1p-24F,
                              0x1.8p-25F,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()};
    std::mt19937 random(1);
    while (values.size() < 5003) {
        const auto bits = static_cast<std::uint32_t>(random());
        float value = 0.0F;
        std::memcpy(&value, &bits, sizeof value);
        if (!std::isnan(value)) {
            values.push_back(value);
        }
    }
    return values;
}

// The loops must round exactly as the types do, whatever instructions they use.
template <class Low, class Wide>
void check_conversions(float factor) {
    std::vector<Wide> wide;
    for (const float value : all_kinds_of_values()) {
        wide.push_back(static_cast<Wide>(value));
    }
    std::vector<Low> low(wide.size());
    ddp::convert_values(std::span<const Wide>(wide), std::span<Low>(low), factor, {});
    for (std::size_t i = 0; i < wide.size(); ++i) {
        const Low expected(static_cast<float>(wide[i] * static_cast<Wide>(factor)));
        ASSERT_EQ(low[i].bits, expected.bits) << wide[i];
    }
    std::vector<Wide> again(wide.size());
    ddp::convert_values(std::span<const Low>(low), std::span<Wide>(again), 1.0F, {});
    for (std::size_t i = 0; i < wide.size(); ++i) {
        ASSERT_EQ(again[i], static_cast<Wide>(static_cast<float>(low[i])));
    }
}

TEST(Conversions, RoundingEqualsThatOfTheTypes) {
    for (const float factor : {1.0F, 0.25F, 1.0F / 3.0F}) {
        check_conversions<float16, float>(factor);
        check_conversions<float16, double>(factor);
        check_conversions<bfloat16, float>(factor);
        check_conversions<bfloat16, double>(factor);
    }
}

TEST(Conversions, NanStaysNan) {
    const std::array<float, 9> wide{std::nanf(""), 0, 0, 0, 0, 0, 0, 0, -std::nanf("")};
    std::vector<float16> half(9);
    std::vector<bfloat16> brain(9);
    ddp::convert_values(std::span<const float>(wide), std::span<float16>(half), 1.0F, {});
    ddp::convert_values(std::span<const float>(wide), std::span<bfloat16>(brain), 1.0F, {});
    for (const std::size_t i : {0U, 8U}) {
        EXPECT_TRUE(std::isnan(static_cast<float>(half[i])));
        EXPECT_TRUE(std::isnan(static_cast<float>(brain[i])));
    }
}

constexpr std::uint32_t kWorldSize = 3;

float sample(std::uint32_t rank, std::size_t index) {
    return std::sin(static_cast<float>(index + 1) * static_cast<float>(rank + 1)) *
           std::exp2(static_cast<float>(index % 10));
}

// The mean over three ranks by way of `wire`, whose values have `bits` of significand.
void check_wire(DType wire, int bits) {
    constexpr std::size_t kCount = 100;
    std::array<std::vector<float>, kWorldSize> results;
    FakeWorld world(kWorldSize);
    run_ranks(world, [&](FakeProcessGroup& group) {
        std::vector<float> value(kCount);
        DistributedDataParallel ddp(group, {{std::span(value)}}, {},
                                    {.hook = low_precision_hook(wire)});
        for (int step = 0; step < 2; ++step) {
            auto* gradient = static_cast<float*>(ddp.gradient(0).data);
            for (std::size_t i = 0; i < kCount; ++i) {
                gradient[i] = sample(group.rank(), i);
            }
            ddp.reduce_gradients();
            results[group.rank()].assign(gradient, gradient + kCount);
        }
    });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    for (std::size_t i = 0; i < kCount; ++i) {
        double exact = 0.0;
        double magnitude = 0.0;
        for (std::uint32_t rank = 0; rank < kWorldSize; ++rank) {
            exact += static_cast<double>(sample(rank, i)) / kWorldSize;
            magnitude += static_cast<double>(std::abs(sample(rank, i))) / kWorldSize;
        }
        // Half a unit for each value, and for each of the additions.
        const double bound = 2.0 * kWorldSize * magnitude * std::exp2(-bits) / 2.0;
        EXPECT_NEAR(static_cast<double>(results[0][i]), exact, bound) << i;
    }
}

TEST(LowPrecisionWire, ErrorStaysWithinTheRoundingAndResultsAreEqualOnAllRanks) {
    check_wire(DType::float16, 11);
    check_wire(DType::bfloat16, 8);
}

TEST(LowPrecisionWire, AverageIsDividedBeforeItCanOverflow) {
    FakeWorld world(4);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<float> value(1);
        DistributedDataParallel ddp(group, {{std::span(value)}}, {},
                                    {.hook = low_precision_hook(DType::float16)});
        *static_cast<float*>(ddp.gradient(0).data) = 60000.0F;
        ddp.reduce_gradients();
        EXPECT_EQ(*static_cast<float*>(ddp.gradient(0).data), 60000.0F);
    });
}

// Buckets of float64 are narrowed too; those that are narrow already travel as they are.
TEST(LowPrecisionWire, OtherBucketsAreUnchanged) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<double> doubles(10);
        std::vector<bfloat16> brains(3);
        DistributedDataParallel ddp(group, {{std::span(doubles)}, {std::span(brains)}}, {},
                                    {.hook = low_precision_hook(DType::float16)});
        auto* wide = static_cast<double*>(ddp.gradient(0).data);
        auto* narrow = static_cast<bfloat16*>(ddp.gradient(1).data);
        wide[9] = 1.0 + 0x1p-30;
        narrow[2] = bfloat16(1e30F);  // far beyond float16
        ddp.reduce_gradients();
        EXPECT_EQ(wide[9], 1.0);
        EXPECT_EQ(narrow[2], bfloat16(1e30F));
    });
}

TEST(LowPrecisionWire, OtherFormatsAreRefused) {
    try {
        (void)low_precision_hook(DType::float8_e5m2);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_THAT(error.what(), HasSubstr("float16 or bfloat16, not as float8_e5m2"));
    }
}

}  // namespace
}  // namespace regroup
