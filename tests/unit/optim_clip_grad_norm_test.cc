// SPDX-License-Identifier: Apache-2.0
#include <regroup/clip_grad_norm.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>
#include <regroup/low_precision.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"
#include "tests/unit/data_parallel_model.h"
#include "tests/unit/optim_support.h"

namespace regroup {
namespace {

using testing::random_values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double norm_of(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values) {
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return std::sqrt(sum);
}

TEST(ClipGradNorm, GradientsBeyondTheNormAreScaledTogether) {
    std::vector<float> one{3.0F, 0.0F};
    std::vector<double> other{4.0};
    EXPECT_EQ(clip_grad_norm({std::span(one), std::span(other)}, 2.5), 5.0);
    const double factor = 2.5 / (5.0 + 1e-6);
    EXPECT_THAT(one, ElementsAre(3.0F * static_cast<float>(factor), 0.0F));
    EXPECT_THAT(other, ElementsAre(4.0 * factor));
    EXPECT_NEAR(clip_grad_norm({std::span(one), std::span(other)}, kInfinity), 2.5, 1e-5);
}

TEST(ClipGradNorm, GradientsWithinTheNormStay) {
    std::vector<float> values = random_values(10'000, 1);
    const std::vector<float> before = values;
    EXPECT_GT(clip_grad_norm({std::span(values)}, 1e6), 1.0);
    EXPECT_EQ(values, before);
    EXPECT_EQ(clip_grad_norm({}, 1.0), 0.0);
}

// Counts on both sides of lanes and chunks.
TEST(ClipGradNorm, NormIsRightForAnyCount) {
    for (const std::size_t count : {1U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 100'003U}) {
        std::vector<float> values = random_values(count, count);
        const double norm = norm_of(values);
        EXPECT_NEAR(clip_grad_norm({std::span(values)}, kInfinity), norm, 1e-12 * norm) << count;
    }
}

template <class T>
void expect_low_precision_is_clipped() {
    std::vector<T> values(5000, static_cast<T>(2.0F));
    const double norm = 2.0 * std::sqrt(5000.0);
    EXPECT_NEAR(clip_grad_norm({std::span(values)}, norm / 4), norm, 1e-9 * norm);
    EXPECT_NEAR(static_cast<float>(values.front()), 0.5F, 0.002F);
    EXPECT_EQ(values.front(), values.back());
}

TEST(ClipGradNorm, GradientsOf16BitsAreClipped) {
    expect_low_precision_is_clipped<float16>();
    expect_low_precision_is_clipped<bfloat16>();
}

TEST(ClipGradNorm, NonfiniteNormPassesOrThrows) {
    for (const float broken :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> values{1.0F, broken, 2.0F};
        EXPECT_FALSE(std::isfinite(clip_grad_norm({std::span(values)}, 1.0)));
        EXPECT_EQ(values[0], 1.0F);
        EXPECT_EQ(values[2], 2.0F);
        EXPECT_THAT(error_text([&] {
                        clip_grad_norm({std::span(values)}, 1.0, {.error_if_nonfinite = true});
                    }),
                    HasSubstr("the norm of the gradients is"));
    }
}

TEST(ClipGradNorm, WrongArgumentsAreRefused) {
    std::vector<float> values(2);
    std::vector<std::int32_t> integers(2);
    const auto complaint = [](const std::vector<TensorView>& gradients, double max_norm) {
        return error_text([&] { clip_grad_norm(gradients, max_norm); });
    };
    EXPECT_THAT(complaint({std::span(values)}, -1.0), HasSubstr("max_norm must be at least 0"));
    EXPECT_THAT(complaint({std::span(values)}, std::nan("")), HasSubstr("max_norm must be"));
    EXPECT_THAT(complaint({std::span(integers)}, 1.0), HasSubstr("not int32"));
    EXPECT_THAT(complaint({{nullptr, 2, DType::float32}}, 1.0), HasSubstr("has no data"));
    EXPECT_THAT(
        complaint({std::span(values), {values.data(), 2, DType::float32, {DeviceKind::cuda, 0}}},
                  1.0),
        HasSubstr("must be on one device"));
}

// Shards that begin at multiples of 4,096 elements, unequal ones and empty ones among them.
TEST(ClipGradNorm, ShardsOfRanksAreClippedToTheBitsOfTheWhole) {
    constexpr std::size_t kCount = 5 * 4096 + 100;
    std::vector<float> whole = random_values(kCount, 3);
    const std::vector<float> gradients = whole;
    const double norm = clip_grad_norm({std::span(whole)}, 1.0);
    for (const std::uint32_t world_size : {1U, 2U, 3U, 8U}) {
        FakeWorld world(world_size);
        run_ranks(world, [&](FakeProcessGroup& group) {
            const std::size_t share = std::size_t{5 / world_size + 1} * 4096;
            const std::size_t first = std::min(kCount, group.rank() * share);
            const std::size_t last = std::min(kCount, first + share);
            std::vector<float> shard(gradients.begin() + static_cast<std::ptrdiff_t>(first),
                                     gradients.begin() + static_cast<std::ptrdiff_t>(last));
            EXPECT_EQ(clip_grad_norm({std::span(shard)}, 1.0, {.shards_of = &group}), norm);
            EXPECT_TRUE(std::equal(shard.begin(), shard.end(),
                                   whole.begin() + static_cast<std::ptrdiff_t>(first)));
        });
    }
}

TEST(ClipGradNorm, NonfiniteShardOfOneRankThrowsOnAll) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<float> shard(10, group.rank() == 1 ? NAN : 1.0F);
        EXPECT_THAT(error_text([&] {
                        clip_grad_norm({std::span(shard)}, 1.0,
                                       {.error_if_nonfinite = true, .shards_of = &group});
                    }),
                    HasSubstr("invalid_argument: gradient clipping: the norm"));
    });
}

TEST(ClipGradNorm, ReducedGradientsOfAllRanksAreClippedAlike) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        testing::Model model(group, {3000, 50, 7000}, {.bucket_bytes = 4096});
        std::vector<float> whole;
        for (std::size_t i = 3; i-- > 0;) {
            model.add(i, static_cast<float>(i + group.rank()));
            whole.insert(whole.end(), model.gradient(i).size(), static_cast<float>(i) + 0.5F);
        }
        model.ddp.finish_step();
        const double norm = norm_of(whole);
        EXPECT_NEAR(clip_grad_norm(model.ddp.gradients(), 1.0), norm, 1e-9 * norm);
        EXPECT_NEAR(model.gradient(2)[6999], 2.5 / norm, 1e-6);
        EXPECT_NEAR(clip_grad_norm(model.ddp.gradients(), kInfinity), 1.0, 1e-5);
    });
}

// Scales are powers of two, so that unscaling costs no bits.
TEST(ClipGradNorm, UnscaledGradientsAreClippedAsThoseWithoutAScale) {
    const std::vector<float> gradient = random_values(5000, 4);
    std::vector<float> plain(gradient.size());
    std::vector<float> scaled(gradient.size());
    std::vector<float> plain_gradient = gradient;
    std::vector<float> scaled_gradient = gradient;
    const SgdOptions options{.learning_rate = 0.1, .momentum = 0.9};
    FusedOptimizer one({{.master = std::span(plain), .gradient = std::span(plain_gradient)}},
                       options);
    FusedOptimizer other({{.master = std::span(scaled), .gradient = std::span(scaled_gradient)}},
                         options);
    GradScaler scaler;
    const double norm = clip_grad_norm({std::span(plain_gradient)}, 1.0);
    one.step();
    for (float& value : scaled_gradient) {
        value *= static_cast<float>(scaler.scale());
    }
    scaler.unscale(std::span(scaled_gradient));
    EXPECT_EQ(clip_grad_norm({std::span(scaled_gradient)}, 1.0), norm);
    other.step(scaler);
    EXPECT_EQ(plain, scaled);

    scaled_gradient[17] = std::numeric_limits<float>::infinity();
    scaler.update();
    scaler.unscale(std::span(scaled_gradient));
    EXPECT_EQ(clip_grad_norm({std::span(scaled_gradient)}, 1.0), kInfinity);
    other.step(scaler);
    EXPECT_EQ(plain, scaled);
    EXPECT_EQ(other.step_count(), 1);
}

}  // namespace
}  // namespace regroup
