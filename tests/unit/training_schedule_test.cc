// SPDX-License-Identifier: Apache-2.0
//
// The expected rates are those of PyTorch 2.14.1, printed with repr():
//
//     optimizer = torch.optim.SGD([torch.zeros(1)], lr=BASE_LR)
//     schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0, T_mult,
//     ETA_MIN) schedule.step() or schedule.step(EPOCH); schedule.get_last_lr()[0]
#include <regroup/error.h>
#include <regroup/lr_schedule.h>

#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup {
namespace {

using Rates = std::vector<double>;

/// Rounding differs between C libraries, in the last place of the cosine.
constexpr double kTolerance = 1e-15;

void check_steps(const CosineWarmRestartsOptions& options, const Rates& expected) {
    CosineWarmRestarts schedule(options);
    for (std::size_t epoch = 0; epoch < expected.size(); ++epoch) {
        EXPECT_NEAR(schedule.lr(), expected[epoch], kTolerance) << "epoch " << epoch;
        EXPECT_EQ(schedule.epoch(), static_cast<double>(epoch));
        schedule.step();
    }
}

TEST(CosineWarmRestarts, RatesOfWholeEpochsEqualThoseOfPyTorch) {
    check_steps({.base_lr = 0.1, .t_0 = 3},
                {0.1, 0.07500000000000001, 0.025000000000000012, 0.1, 0.07500000000000001,
                 0.025000000000000012, 0.1, 0.07500000000000001});
    check_steps(
        {.base_lr = 0.1, .t_0 = 2, .t_mult = 2, .eta_min = 0.001},
        {0.1, 0.0505, 0.1, 0.0855017856687341, 0.0505, 0.0154982143312659, 0.1, 0.0962320368593087,
         0.0855017856687341, 0.06944282990207196, 0.0505, 0.03155717009792806, 0.0154982143312659,
         0.004767963140691307, 0.1, 0.09904887137995991});
    check_steps(
        {.base_lr = 0.5, .t_0 = 1, .t_mult = 3, .eta_min = 0.01},
        {0.5, 0.5, 0.3775, 0.13250000000000006, 0.5, 0.48522469209254754, 0.4426808885641496,
         0.3775, 0.297543803528398, 0.21245619647160208, 0.13250000000000006, 0.06731911143585041,
         0.024775307907452464, 0.5, 0.49834339764677604});
}

TEST(CosineWarmRestarts, RatesOfFractionalEpochsEqualThoseOfPyTorchInAnyOrder) {
    CosineWarmRestarts growing({.base_lr = 0.1, .t_0 = 2, .t_mult = 2, .eta_min = 0.001});
    CosineWarmRestarts even({.base_lr = 0.1, .t_0 = 3});
    struct Row {
        double epoch, growing, even;
    };
    for (const Row& row :
         {Row{0.25, 0.0962320368593087, 0.09829629131445342}, Row{1.5, 0.0154982143312659, 0.05},
          Row{2.0, 0.1, 0.025000000000000012}, Row{2.125, 0.09976164397027375, 0.01956192854956397},
          Row{5.75, 0.0019511286200400938, 0.00170370868554659}, Row{6.0, 0.1, 0.1},
          Row{9.5, 0.06015697093979836, 0.09330127018922195},
          Row{13.999, 0.0010000038167610262, 0.02504535868360074},
          Row{14.0, 0.1, 0.025000000000000012},
          Row{20.0, 0.06944282990207196, 0.025000000000000012}, Row{3.0, 0.0855017856687341, 0.1},
          Row{100.25, 0.03555070550869821, 0.06294095225512604}, Row{0.0, 0.1, 0.1}}) {
        growing.step_to(row.epoch);
        even.step_to(row.epoch);
        EXPECT_NEAR(growing.lr(), row.growing, kTolerance) << "epoch " << row.epoch;
        EXPECT_NEAR(even.lr(), row.even, kTolerance) << "epoch " << row.epoch;
    }
}

// PyTorch finds the period by a logarithm: step(121) with T_0 = 1, T_mult = 3 gives eta_min there,
// where its own step() and the formula have a restart.
TEST(CosineWarmRestarts, EveryRestartIsExact) {
    const CosineWarmRestarts schedule({.base_lr = 0.5, .t_0 = 1, .t_mult = 3, .eta_min = 0.01});
    for (const double restart : {1.0, 4.0, 13.0, 40.0, 121.0, 364.0}) {
        EXPECT_EQ(schedule.lr_at(restart), 0.5) << restart;
        EXPECT_LT(schedule.lr_at(restart - 0.001), 0.02) << restart;
    }
}

TEST(CosineWarmRestarts, StepFromAFractionGoesToTheNextWholeEpoch) {
    CosineWarmRestarts schedule({.t_0 = 4});
    schedule.step_to(2.75);
    schedule.step();
    EXPECT_EQ(schedule.epoch(), 3.0);
}

TEST(CosineWarmRestarts, ResumedScheduleHasTheSameRate) {
    const CosineWarmRestartsOptions options{.base_lr = 0.3, .t_0 = 5, .t_mult = 2};
    CosineWarmRestarts schedule(options);
    schedule.step_to(17.375);
    Checkpoint checkpoint;
    schedule.save(checkpoint);
    CosineWarmRestarts resumed(options);
    resumed.load(checkpoint);
    for (int i = 0; i < 40; ++i) {
        EXPECT_EQ(resumed.lr(), schedule.lr());
        resumed.step();
        schedule.step();
    }
    EXPECT_THROW(resumed.load(Checkpoint()), Error);
}

TEST(CosineWarmRestarts, InvalidOptionsAreRefused) {
    EXPECT_THROW(CosineWarmRestarts({.t_0 = 0}), Error);
    EXPECT_THROW(CosineWarmRestarts({.t_mult = 0}), Error);
    EXPECT_THROW(CosineWarmRestarts({.eta_min = std::numeric_limits<double>::quiet_NaN()}), Error);
    CosineWarmRestarts schedule({});
    EXPECT_THROW(schedule.step_to(-0.5), Error);
    EXPECT_THROW(schedule.step_to(std::numeric_limits<double>::infinity()), Error);
}

}  // namespace
}  // namespace regroup
