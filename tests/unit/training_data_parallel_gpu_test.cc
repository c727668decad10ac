// SPDX-License-Identifier: Apache-2.0
// Peers that are lost while DistributedDataParallel works on a GPU, where the host never waits.
#include <regroup/communication_hook.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/low_precision.h>

#include <latch>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"
#include "tests/unit/data_parallel_model.h"

namespace regroup {
namespace {

using testing::kGpu;

/// Two parameters with a bucket each.
struct GpuModel {
    explicit GpuModel(ProcessGroup& group, DataParallelOptions options = {})
        : ddp(group,
              {{{one.data(), one.size(), DType::float32, kGpu}},
               {{two.data(), two.size(), DType::float32, kGpu}}},
              {}, with_small_buckets(std::move(options))) {}

    static DataParallelOptions with_small_buckets(DataParallelOptions options) {
        options.bucket_bytes = 64;
        return options;
    }

    std::vector<float> one = std::vector<float>(16);
    std::vector<float> two = std::vector<float>(16);
    DistributedDataParallel ddp;
};

TEST(DataParallelGpu, BucketOfAGroupThatHasEndedThrows) {
    for (const bool with_hook : {false, true}) {
        FakeWorld world(1, kGpu);
        FakeProcessGroup group(world, 0);
        GpuModel model(group, {.hook = with_hook ? low_precision_hook(DType::bfloat16) : nullptr});
        model.ddp.reduce_gradients();
        world.fail_from(group.sequence());
        EXPECT_THAT(error_text([&] { model.ddp.gradient_ready(1); }), HasSubstr("disconnected"));
    }
}

TEST(DataParallelGpu, StepFinishesWithTheErrorOfABucketThatHasFailed) {
    FakeWorld world(2, kGpu);
    std::latch issued(2);
    run_ranks(world, [&](FakeProcessGroup& group) {
        GpuModel model(group);
        model.ddp.reduce_gradients();
        if (group.rank() == 0) {
            model.ddp.gradient_ready(1);
            model.ddp.gradient_ready(0);
        }
        issued.arrive_and_wait();
        world.abort();
        if (group.rank() == 0) {
            EXPECT_THAT(error_text([&] { model.ddp.finish_step(); }), HasSubstr("fenced"));
        }
    });
}

// The peer is lost after finish_step, for which the host did not wait.
TEST(DataParallelGpu, NextStepBeginsWithTheErrorOfTheStepBefore) {
    FakeWorld world(2, kGpu);
    std::latch issued(2);
    run_ranks(world, [&](FakeProcessGroup& group) {
        GpuModel model(group);
        model.ddp.reduce_gradients();
        if (group.rank() == 0) {
            model.ddp.reduce_gradients();
        }
        issued.arrive_and_wait();
        world.abort();
        if (group.rank() == 0) {
            const std::uint64_t sequence = group.sequence();
            EXPECT_THAT(error_text([&] { model.ddp.gradient_ready(1); }), HasSubstr("fenced"));
            EXPECT_EQ(group.sequence(), sequence);  // Nothing is added to what is lost.
        }
    });
}

}  // namespace
}  // namespace regroup
