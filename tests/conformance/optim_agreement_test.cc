// SPDX-License-Identifier: Apache-2.0
//
// Loss scaling among the ranks of a group: all ranks skip a step in which one overflows.
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>

#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"

namespace regroup {
namespace {

TEST(GradScalerAgreement, AllRanksSkipTheStepInWhichOneOverflows) {
    testing::run_ranks(3, [](ProcessGroup& group) {
        std::vector<float> master(20, 1.0F);
        std::vector<float> gradient(20, 1.0F);
        GradScaler scaler({.init_scale = 1.0});
        FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(gradient)}},
                                 SgdOptions{.learning_rate = 0.25});
        for (std::uint32_t step = 0; step < 4; ++step) {
            // Rank i overflows in step i, and no rank in step 3.
            gradient[7] = group.rank() == step ? std::numeric_limits<float>::infinity()
                                               : static_cast<float>(scaler.scale());
            scaler.check(std::span(gradient));
            EXPECT_EQ(scaler.overflowed(), group.rank() == step);
            scaler.agree(group).wait();
            EXPECT_EQ(scaler.overflowed(), step < 3);
            optimizer.step(scaler);
            scaler.update();
        }
        EXPECT_EQ(scaler.skipped_steps(), 3);
        EXPECT_EQ(scaler.scale(), 0.125);
        EXPECT_EQ(optimizer.step_count(), 1);
        EXPECT_EQ(master[7], 0.75F);
    });
}

TEST(GradScalerAgreement, OverflowSurvivesASum) {
    testing::run_ranks(2, [](ProcessGroup& group) {
        GradScaler scaler;
        if (group.rank() == 1) {
            scaler.report_overflow();
        }
        group.all_reduce(scaler.overflow_tensor(), ReduceOp::sum).wait();
        EXPECT_TRUE(scaler.overflowed());
    });
}

}  // namespace
}  // namespace regroup
