// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/main_process.h>

#include <atomic>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"

namespace regroup {
namespace {

TEST(LogMain, OnlyRankZeroPrints) {
    Context context;
    context.world_size = 2;
    ::testing::internal::CaptureStdout();
    log_main(context, "epoch 1: loss 0.5");
    context.rank = 1;
    log_main(context, "unheard");
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "epoch 1: loss 0.5\n");
}

TEST(RunOnMain, ActionRunsOnOneRankAndAllRanksSeeItsResult) {
    std::atomic<int> action_count = 0;
    run_ranks(3, [&](ProcessGroup& group) {
        run_on_main(group, [&] {
            EXPECT_EQ(group.rank(), 0U);
            ++action_count;
        });
        EXPECT_EQ(action_count, 1);
    });
}

TEST(RunOnMain, ErrorReachesEveryRankAndTheGroupGoesOn) {
    run_ranks(3, [](ProcessGroup& group) {
        const auto error = error_of(
            [&] { run_on_main(group, [] { throw Error(Errc::overloaded, "the disk is full"); }); });
        EXPECT_EQ(error->code(), Errc::overloaded);
        EXPECT_STREQ(error->what(), "the disk is full");
        group.barrier().wait();
    });
}

TEST(RunOnMain, OtherExceptionIsItselfOnRankZeroAndAnErrorElsewhere) {
    run_ranks(2, [](ProcessGroup& group) {
        const auto act = [&] { run_on_main(group, [] { throw std::out_of_range("no entry"); }); };
        if (group.rank() == 0) {
            EXPECT_THROW(act(), std::out_of_range);
        } else {
            const auto error = error_of(act);
            EXPECT_EQ(error->code(), Errc::system);
            EXPECT_STREQ(error->what(), "no entry");
        }
    });
}

}  // namespace
}  // namespace regroup
