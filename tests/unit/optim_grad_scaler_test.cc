// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/grad_scaler.h>
#include <regroup/low_precision.h>

#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/optim_support.h"

namespace regroup {
namespace {

using testing::complaint;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

void step(GradScaler& scaler, bool overflow) {
    if (overflow) {
        scaler.report_overflow();
    }
    scaler.update();
}

TEST(GradScaler, ScaleHalvesAtAnOverflowAndGrowsBackAfterTheInterval) {
    GradScaler scaler({.init_scale = 65536.0, .growth_interval = 3});
    EXPECT_EQ(scaler.scale(), 65536.0);
    step(scaler, true);
    step(scaler, true);
    EXPECT_EQ(scaler.scale(), 16384.0);
    EXPECT_EQ(scaler.skipped_steps(), 2);
    step(scaler, false);
    step(scaler, false);
    EXPECT_EQ(scaler.scale(), 16384.0);
    step(scaler, false);
    EXPECT_EQ(scaler.scale(), 32768.0);
    step(scaler, false);
    step(scaler, false);
    step(scaler, true);  // begins the interval again
    step(scaler, false);
    step(scaler, false);
    EXPECT_EQ(scaler.scale(), 16384.0);
    step(scaler, false);
    EXPECT_EQ(scaler.scale(), 32768.0);
    EXPECT_EQ(scaler.skipped_steps(), 3);
}

TEST(GradScaler, DefaultsEqualThoseOfPyTorch) {
    GradScaler scaler;
    EXPECT_EQ(scaler.scale(), 65536.0);
    for (int i = 0; i < 1999; ++i) {
        scaler.update();
    }
    EXPECT_EQ(scaler.scale(), 65536.0);
    scaler.update();
    EXPECT_EQ(scaler.scale(), 131072.0);
}

TEST(GradScaler, ScaleNeverGrowsToInfinity) {
    GradScaler scaler({.init_scale = 3e38, .growth_interval = 1});
    scaler.update();
    EXPECT_EQ(scaler.scale(), static_cast<double>(3e38F));
}

TEST(GradScaler, InfAndNanAreRecordedUntilTheStepEnds) {
    GradScaler scaler;
    std::vector<float16> gradient(100, float16(60000.0F));
    scaler.check(std::span(gradient));
    EXPECT_FALSE(scaler.overflowed());
    gradient[70] = float16(70000.0F);
    scaler.check(std::span(gradient));
    gradient[70] = float16(1.0F);
    scaler.check(std::span(gradient));  // A finite tensor does not clear the overflow.
    EXPECT_TRUE(scaler.overflowed());
    scaler.update();
    EXPECT_FALSE(scaler.overflowed());
}

TEST(GradScaler, ManyTensorsAreCheckedAndUnscaledTogether) {
    GradScaler scaler({.init_scale = 4.0});
    std::vector<float> first{4.0F, -2.0F};
    std::vector<float> second{8.0F};
    std::vector<bfloat16> third{bfloat16(1.0F)};
    scaler.unscale_all(std::vector<TensorView>{std::span(first), std::span(second)});
    EXPECT_EQ(first, (std::vector<float>{1.0F, -0.5F}));
    EXPECT_EQ(second, (std::vector<float>{2.0F}));
    const std::vector<ConstTensorView> all{std::span(first), std::span(third), std::span(second)};
    scaler.check_all(all);
    EXPECT_FALSE(scaler.overflowed());
    third[0] = bfloat16(kFloatInfinity);
    scaler.check_all(all);
    EXPECT_TRUE(scaler.overflowed());
}

TEST(GradScaler, UnscaleDividesAndChecks) {
    GradScaler scaler({.init_scale = 4.0});
    std::vector<float> gradient{4.0F, -2.0F};
    scaler.unscale(std::span(gradient));
    EXPECT_EQ(gradient, (std::vector<float>{1.0F, -0.5F}));
    EXPECT_FALSE(scaler.overflowed());
    gradient[1] = kFloatInfinity;
    scaler.unscale(std::span(gradient));
    EXPECT_TRUE(scaler.overflowed());
}

TEST(GradScaler, DisabledScalerScalesByOneAndSkipsNothing) {
    GradScaler scaler({.enabled = false});
    std::vector<float> gradient{kFloatInfinity};
    scaler.check(std::span(gradient));
    scaler.report_overflow();
    scaler.update();
    EXPECT_EQ(scaler.scale(), 1.0);
    EXPECT_FALSE(scaler.overflowed());
    EXPECT_EQ(scaler.skipped_steps(), 0);
}

TEST(GradScaler, ResumedScalerContinues) {
    GradScaler first({.init_scale = 1024.0, .growth_interval = 4});
    step(first, true);
    step(first, false);
    step(first, false);
    step(first, false);
    Checkpoint checkpoint;
    first.save(checkpoint);
    GradScaler resumed({.growth_interval = 4});
    resumed.load(checkpoint);
    EXPECT_EQ(resumed.scale(), 512.0);
    EXPECT_EQ(resumed.skipped_steps(), 1);
    step(resumed, false);
    EXPECT_EQ(resumed.scale(), 1024.0);
    EXPECT_THROW(resumed.load(checkpoint, "another"), Error);
}

TEST(GradScaler, CopyOfTheStateIsEnoughToContinue) {
    GradScaler first({.init_scale = 1024.0, .growth_interval = 2});
    step(first, true);
    step(first, false);
    GradScaler second({.growth_interval = 2});
    const std::vector<TensorView> from = first.state();
    const std::vector<TensorView> to = second.state();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::memcpy(to[i].data, from[i].data, from[i].bytes());
    }
    step(second, false);
    EXPECT_EQ(second.scale(), 1024.0);
    EXPECT_EQ(second.skipped_steps(), 1);
}

TEST(GradScaler, InvalidArgumentsAreRefused) {
    EXPECT_THAT(complaint([] { GradScaler({.init_scale = 0.0}); }), HasSubstr("init_scale"));
    EXPECT_THAT(complaint([] { GradScaler({.growth_factor = 0.5}); }), HasSubstr("growth_factor"));
    EXPECT_THAT(complaint([] { GradScaler({.backoff_factor = 1.0}); }),
                HasSubstr("backoff_factor must be between 0 and 1, not 1.0"));
    EXPECT_THAT(complaint([] { GradScaler({.growth_interval = 0}); }),
                HasSubstr("growth_interval must be at least 1, not 0"));
    GradScaler scaler;
    for (const double scale : {-2.0, 0.0, 1e300}) {
        Checkpoint checkpoint;
        scaler.save(checkpoint, "s");
        checkpoint.set_number("s.scale", scale);
        EXPECT_THAT(complaint([&] { scaler.load(checkpoint, "s"); }), HasSubstr("scale must be"));
    }
    for (const std::string name : {"good_steps", "skipped_steps"}) {
        Checkpoint checkpoint;
        scaler.save(checkpoint, "s");
        checkpoint.set_integer("s." + name, -1);
        EXPECT_THAT(complaint([&] { scaler.load(checkpoint, "s"); }), HasSubstr("counts of steps"));
    }
    EXPECT_EQ(scaler.scale(), 65536.0);
    std::vector<float16> half(1);
    std::vector<double> doubles(1);
    EXPECT_THAT(complaint([&] { scaler.unscale(std::span(half)); }), HasSubstr("float16"));
    EXPECT_THAT(complaint([&] { scaler.check(std::span(doubles)); }), HasSubstr("not float64"));
    const TensorView elsewhere(half.data(), 1, DType::float16, {DeviceKind::cuda, 2});
    EXPECT_THAT(complaint([&] { scaler.check(elsewhere); }),
                HasSubstr("works on cpu, but a gradient is on cuda:2"));
    // No machine has so many GPUs; a build without CUDA says what it lacks.
    EXPECT_THROW(GradScaler({}, {DeviceKind::cuda, 9999}), Error);
}

}  // namespace
}  // namespace regroup
