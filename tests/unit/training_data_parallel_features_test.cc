// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>
#include <regroup/fused_optimizer.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"
#include "tests/unit/data_parallel_model.h"

namespace regroup {
namespace {

using testing::Model;

TEST(GradientViews, ViewsAreAlignedInTheBucketsAndHoldTheReduction) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {3, 20, 0, 5}, {.bucket_bytes = 128});
        const auto mine = static_cast<float>(1 + group.rank());
        for (const std::size_t index : {3U, 2U, 1U, 0U}) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(model.ddp.gradient(index).data) % 64, 0U);
            EXPECT_THAT(model.contents(index), Each(0.0F));
            model.add(index, mine);
        }
        model.ddp.finish_step();
        EXPECT_THAT(model.contents(0), ElementsAre(1.5F, 1.5F, 1.5F));
        EXPECT_THAT(model.contents(1), Each(1.5F));

        // The same seen as a whole, whose padding stays zero.
        ASSERT_EQ(model.ddp.gradients().size(), 1U);
        const TensorView all = model.ddp.gradients().front();
        const std::span values(static_cast<const float*>(all.data), all.count);
        EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 28 * 1.5);
        EXPECT_EQ(all.bytes(), model.ddp.gradient_memory().bytes);
        model.ddp.zero_gradients();
        EXPECT_THAT(model.contents(1), Each(0.0F));
        EXPECT_THAT(error_text([&] { (void)model.ddp.gradient(4); }), HasSubstr("no gradient 4"));
    });
}

TEST(GradientViews, CopyOfTheMemoryKeepsViewsValid) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Buffer memory;
    std::span<float> gradient;
    {
        Model model(group, {4});
        model.add(0, 2.0F);
        model.ddp.finish_step();
        memory = model.ddp.gradient_memory();
        gradient = model.gradient(0);
    }
    EXPECT_THAT(gradient, Each(2.0F));
}

TEST(GradientViews, GradientsMayHaveAnotherDtypeThanTheirValues) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<bfloat16> value(3);
        const Parameter parameter{.value = std::span(value),
                                  .gradient = {nullptr, 3, DType::float32}};
        DistributedDataParallel ddp(group, {parameter});
        ASSERT_EQ(ddp.gradient(0).dtype, DType::float32);
        static_cast<float*>(ddp.gradient(0).data)[1] = 1.0F + 0x1p-20F;
        ddp.reduce_gradients();
        EXPECT_EQ(static_cast<float*>(ddp.gradient(0).data)[1], 1.0F + 0x1p-20F);
    });
}

// Rank 0 reports from the first to the last, rank 1 the other way round.
TEST(RebuiltBuckets, BucketsFollowTheOrderOfRankZeroInTheFirstStep) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {16, 16, 16, 16}, {.bucket_bytes = 128});
        EXPECT_FALSE(model.ddp.buckets_are_final());
        const auto step = [&] {
            model.ddp.zero_gradients();
            for (std::size_t i = 0; i < 4; ++i) {
                const std::size_t index = group.rank() == 0 ? i : 3 - i;
                model.add(index, static_cast<float>(10 * index + group.rank()));
            }
            model.ddp.finish_step();
            for (std::size_t index = 0; index < 4; ++index) {
                EXPECT_THAT(model.contents(index), Each(static_cast<float>(10 * index) + 0.5F));
            }
        };
        const auto parameters_of = [&](std::size_t bucket) {
            return model.ddp.buckets()[bucket].parameters;
        };
        EXPECT_THAT(parameters_of(0), ElementsAre(3, 2));
        step();
        EXPECT_TRUE(model.ddp.buckets_are_final());
        // Each bucket in the order of memory.
        EXPECT_THAT(parameters_of(0), ElementsAre(1, 0));
        EXPECT_THAT(parameters_of(1), ElementsAre(3, 2));
        step();
        step();
    });
}

// From the first parameter to the last: not as planned, so that the plan changes.
TEST(RebuiltBuckets, OptimizerTakesTheGradientsOnce) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<std::vector<float>> values = Model::make_values({16, 32, 16});
        std::vector<OptimizerTensors> tensors;
        for (std::vector<float>& value : values) {
            tensors.push_back({.master = std::span(value)});
        }
        FusedOptimizer optimizer(tensors, SgdOptions{.learning_rate = 1.0});
        EXPECT_THAT(error_text([&] { optimizer.step(); }), HasSubstr("call set_gradients()"));
        DistributedDataParallel ddp(group, Model::parameters(values), {}, {.bucket_bytes = 1});
        optimizer.set_gradients(ddp);
        for (int step = 1; step <= 3; ++step) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                const TensorView gradient = ddp.gradient(i);
                std::fill_n(static_cast<float*>(gradient.data), gradient.count,
                            static_cast<float>(10 * i + group.rank()));
                ddp.gradient_ready(i);
            }
            ddp.finish_step();
            optimizer.step();
            for (std::size_t i = 0; i < values.size(); ++i) {
                const float gradient = static_cast<float>(10 * i) + 0.5F;
                EXPECT_THAT(values[i], Each(-gradient * static_cast<float>(step)));
            }
        }
    });
}

// The order of rank 0 pairs parameters that are not neighbours in memory.
TEST(RebuiltBuckets, GradientsStayInPlaceThoughTheirBucketsAreElsewhere) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {16, 16, 16, 16}, {.bucket_bytes = 128, .unused_parameters = true});
        std::vector<const void*> places;
        for (std::size_t i = 0; i < 4; ++i) {
            places.push_back(model.ddp.gradient(i).data);
        }
        const auto mine = static_cast<float>(1 + group.rank());
        for (int step = 0; step < 3; ++step) {
            model.ddp.zero_gradients();
            {
                const auto guard = model.ddp.no_sync();
                model.add(0, mine);
            }
            model.add(0, mine);
            model.add(2, mine);
            model.add(1, mine);
            model.ddp.finish_step();  // Nobody has used 3.
            EXPECT_THAT(model.ddp.buckets()[0].parameters, ElementsAre(2, 0));
            EXPECT_THAT(model.contents(0), Each(3.0F));
            EXPECT_THAT(model.contents(1), Each(1.5F));
            EXPECT_THAT(model.contents(2), Each(1.5F));
            EXPECT_THAT(model.contents(3), Each(0.0F));
            for (std::size_t i = 0; i < 4; ++i) {
                EXPECT_EQ(model.ddp.gradient(i).data, places[i]);
            }
        }
        const std::size_t bytes = model.ddp.gradient_memory().bytes;
        EXPECT_EQ(bytes, 4 * 64U);
        EXPECT_EQ(model.ddp.gradients().front().bytes(), bytes);
    });
}

TEST(GradientViews, AllGradientsAreOneTensorForEachDtypeAndTheCallersOwn) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    std::vector<float> floats(3);
    std::vector<double> doubles(3);
    std::vector<float> own(3);
    const std::vector<Parameter> parameters{{std::span(floats)},
                                            {std::span(doubles)},
                                            {std::span(floats)},
                                            {std::span(floats), std::span(own)},
                                            {std::span(doubles)}};
    DistributedDataParallel ddp(group, parameters, {}, {.bucket_bytes = 64});
    EXPECT_EQ(ddp.parameter_count(), 5U);
    std::size_t own_tensors = 0;
    std::size_t bytes = 0;
    for (const TensorView& tensor : ddp.gradients()) {
        own_tensors += tensor.data == own.data() ? 1 : 0;
        bytes += tensor.data == own.data() ? 0 : tensor.bytes();
    }
    EXPECT_EQ(own_tensors, 1U);
    EXPECT_EQ(bytes, 4 * 64U);
    EXPECT_LE(ddp.gradients().size(), 4U);
}

TEST(RebuiltBuckets, OptionKeepsTheFirstLayout) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Model model(group, {16, 16}, {.bucket_bytes = 1, .rebuild_buckets = false});
    EXPECT_TRUE(model.ddp.buckets_are_final());
    const void* const place = model.ddp.gradient(0).data;
    model.add(0, 1.0F);
    model.add(1, 1.0F);
    model.ddp.finish_step();
    EXPECT_EQ(model.ddp.gradient(0).data, place);
    EXPECT_THAT(model.ddp.buckets()[0].parameters, ElementsAre(1));
}

// Two halves of a batch without and with synchronisation, beside the whole batch at once.
TEST(NoSync, AccumulatedHalvesEqualTheWholeBatch) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {4, 30}, {.bucket_bytes = 64});
        for (int step = 0; step < 3; ++step) {
            const auto mine = static_cast<float>(group.rank() + 1);
            const std::size_t reduced_before = group.reduced_counts().size();
            model.ddp.zero_gradients();
            {
                const auto guard = model.ddp.no_sync();
                model.add(1, mine);
                model.add(0, 2 * mine);
                model.ddp.finish_step();  // does nothing
                model.add(1, mine);
            }
            EXPECT_EQ(group.reduced_counts().size(), reduced_before);
            EXPECT_THAT(model.contents(1), Each(2 * mine));
            model.add(1, 10 * mine);
            model.add(0, 20 * mine);
            model.ddp.finish_step();
            EXPECT_THAT(model.contents(1), Each(12 * 2.0F));
            EXPECT_THAT(model.contents(0), Each(22 * 2.0F));
        }
    });
}

TEST(NoSync, NoSyncIsRefusedInTheMiddleOfAStepAndMayBeNested) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Model model(group, {1, 1});
    {
        const auto outer = model.ddp.no_sync();
        const auto inner = model.ddp.no_sync();
        model.ddp.gradient_ready(0);
    }
    model.ddp.gradient_ready(1);
    EXPECT_THAT(error_text([&] { (void)model.ddp.no_sync(); }),
                HasSubstr("in the middle of a step"));
    model.ddp.gradient_ready(0);
    model.ddp.finish_step();
}

TEST(UnusedParameters, UnusedGradientsCountAsZeroAndAreReportedIfNoRankUsesThem) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {2, 2, 2}, {.bucket_bytes = 64, .unused_parameters = true});
        for (int step = 0; step < 3; ++step) {
            // Gradients of the step before are still there: 0 is used by both, 1 by rank 1 alone.
            std::ranges::fill(model.gradient(0), 4.0F);
            if (group.rank() == 1) {
                std::ranges::fill(model.gradient(1), 6.0F);
                model.ddp.gradient_ready(1);
            }
            if (group.rank() == 0 && step == 1) {
                model.ddp.gradient_unused(2);  // Early, on one rank: the same to the others.
            }
            model.ddp.gradient_ready(0);
            model.ddp.finish_step();
            EXPECT_THAT(model.contents(0), Each(4.0F));
            EXPECT_THAT(model.contents(1), Each(3.0F));
            EXPECT_THAT(model.contents(2), Each(0.0F));
            EXPECT_TRUE(model.ddp.was_used(0));
            EXPECT_TRUE(model.ddp.was_used(1));
            EXPECT_FALSE(model.ddp.was_used(2));
            EXPECT_THAT(error_text([&] { (void)model.ddp.was_used(3); }),
                        HasSubstr("there is no gradient 3"));
        }
    });
}

TEST(UnusedParameters, GradientsInTheCallersMemoryAreUnchangedIfNoRankUsesThem) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<std::vector<float>> values(2, std::vector<float>(2));
        std::vector<std::vector<float>> gradients(2, std::vector<float>(2, 7.0F));
        DistributedDataParallel ddp(group,
                                    {{std::span(values[0]), std::span(gradients[0])},
                                     {std::span(values[1]), std::span(gradients[1])}},
                                    {}, {.unused_parameters = true});
        if (group.rank() == 0) {
            ddp.gradient_ready(1);
        }
        ddp.finish_step();
        EXPECT_THAT(gradients[0], Each(7.0F));
        EXPECT_THAT(gradients[1], Each(3.5F));
    });
}

// The sum of no_sync steps is reduced, even if the last step does not use the parameter.
TEST(UnusedParameters, GradientsOfNoSyncStepsAreReduced) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {2, 2}, {.unused_parameters = true});
        {
            const auto guard = model.ddp.no_sync();
            model.add(0, 8.0F * static_cast<float>(group.rank()));
        }
        model.add(1, 1.0F);
        model.ddp.finish_step();
        EXPECT_TRUE(model.ddp.was_used(0));
        EXPECT_THAT(model.contents(0), Each(4.0F));
    });
}

TEST(UnusedParameters, UnusedParametersNeedTheOption) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Model model(group, {1, 1});
    EXPECT_THAT(error_text([&] { model.ddp.gradient_unused(0); }),
                HasSubstr("unused_parameters is off"));
    EXPECT_TRUE(model.ddp.was_used(0));
}

// A generator and a critic whose backward passes alternate, on one group.
TEST(SeveralModels, SeveralModelsShareAGroupAndInterleave) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model first(group, {16, 16}, {.bucket_bytes = 64});
        Model second(group, {16, 16, 16}, {.bucket_bytes = 64, .reduction = ReduceOp::sum});
        for (int step = 0; step < 3; ++step) {
            first.ddp.zero_gradients();
            second.ddp.zero_gradients();
            first.add(1, 3.0F);
            second.add(2, 1.0F);
            first.add(0, static_cast<float>(group.rank()));
            second.add(1, 2.0F);
            second.add(0, 3.0F);
            second.ddp.finish_step();
            first.ddp.finish_step();
            EXPECT_THAT(first.contents(1), Each(3.0F));
            EXPECT_THAT(first.contents(0), Each(1.0F));
            EXPECT_THAT(second.contents(2), Each(3.0F));
            EXPECT_THAT(second.contents(0), Each(9.0F));
        }
    });
}

// Sends the sign of each gradient, and records its calls.
class SignHook : public CommunicationHook {
   public:
    void prepare(ProcessGroup& /*group*/, std::span<const GradientBucket> buckets) override {
        ++prepared;
        signs.assign(buckets.size(), {});
        for (const GradientBucket& bucket : buckets) {
            signs[bucket.index].resize(bucket.gradients.count);
        }
    }
    Work start(ProcessGroup& group, const GradientBucket& bucket) override {
        started.push_back(bucket.index);
        EXPECT_EQ(bucket.is_last, bucket.index + 1 == signs.size());
        const auto* values = static_cast<const float*>(bucket.gradients.data);
        std::vector<float>& mine = signs[bucket.index];
        for (std::size_t i = 0; i < mine.size(); ++i) {
            mine[i] = values[i] > 0 ? 1.0F : (values[i] < 0 ? -1.0F : 0.0F);
        }
        return group.all_reduce(std::span(mine), bucket.reduction);
    }
    void finish(ProcessGroup& /*group*/, const GradientBucket& bucket) override {
        std::ranges::copy(signs[bucket.index], static_cast<float*>(bucket.gradients.data));
    }
    int prepared = 0;
    std::vector<std::size_t> started;
    std::vector<std::vector<float>> signs;
};

TEST(Hook, HookReplacesTheAllReduce) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        const auto hook = std::make_shared<SignHook>();
        Model model(group, {16, 16}, {.bucket_bytes = 64, .hook = hook});
        for (int step = 0; step < 2; ++step) {
            model.ddp.zero_gradients();
            model.add(0, 5.0F);
            model.add(1, group.rank() == 0 ? 5.0F : -100.0F);
            model.ddp.finish_step();
            EXPECT_THAT(model.contents(0), Each(1.0F));
            EXPECT_THAT(model.contents(1), Each(0.0F));
        }
        EXPECT_EQ(hook->prepared, 2);  // At first, and when the buckets changed.
        EXPECT_THAT(hook->started, ElementsAre(0, 1, 0, 1));
    });
}

TEST(Buffers, OptionBroadcastsBuffersAfterEveryStep) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        std::vector<float> value(1);
        std::vector<float> running_mean(2);
        DistributedDataParallel ddp(group, {{std::span(value)}}, {std::span(running_mean)},
                                    {.broadcast_buffers_each_step = true});
        std::ranges::fill(running_mean, 3.0F + static_cast<float>(group.rank()));
        ddp.reduce_gradients();
        EXPECT_THAT(running_mean, Each(3.0F));
    });
}

TEST(Parameters, ParametersAreBroadcastFromAnyRank) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {2});
        std::ranges::fill(model.values[0], static_cast<float>(group.rank()));
        model.ddp.broadcast_parameters(2);
        EXPECT_THAT(model.values[0], Each(2.0F));
    });
}

TEST(Replicas, DifferentReplicasAreNamed) {
    FakeWorld world(4);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {3, 0, 1000, 5});
        EXPECT_EQ(model.ddp.find_replica_difference(), std::nullopt);
        if (group.rank() == 0) {
            // One bit of one value, on the rank that others are compared with first.
            auto& value = model.values[2][777];
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            bits ^= 1U;
            std::memcpy(&value, &bits, sizeof bits);
        }
        auto difference = model.ddp.find_replica_difference();
        ASSERT_TRUE(difference.has_value());
        EXPECT_EQ(difference->parameter, 2U);
        EXPECT_THAT(difference->ranks, ElementsAre(0));

        const std::uint32_t pair = group.rank() / 2;
        model.values[3][4] = static_cast<float>(pair);
        model.ddp.broadcast_buffers();
        model.values[2][777] = 0.0F;
        difference = model.ddp.find_replica_difference();
        ASSERT_TRUE(difference.has_value());
        EXPECT_EQ(difference->parameter, 3U);
        EXPECT_THAT(difference->ranks, ElementsAre(2, 3));
    });
}

TEST(Statistics, StatisticsShowTheHiddenPartOfTheCommunication) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Model model(group, {16, 16}, {.bucket_bytes = 64});
        EXPECT_EQ(model.ddp.statistics().step, 0U);
        for (std::uint64_t step = 1; step <= 2; ++step) {
            model.ddp.reduce_gradients();
            const StepStatistics statistics = model.ddp.statistics();
            EXPECT_EQ(statistics.step, step);
            EXPECT_EQ(statistics.bytes, 128U);
            EXPECT_EQ(statistics.bucket_count, 2U);
            EXPECT_GE(statistics.communication.count(), 0);
            EXPECT_GE(statistics.hidden(), 0.0);
            EXPECT_LE(statistics.hidden(), 1.0);
        }
    });
    using std::chrono::nanoseconds;
    const auto hidden = [](int communication, int waited) {
        return StepStatistics{.communication = nanoseconds(communication),
                              .waited = nanoseconds(waited)}
            .hidden();
    };
    EXPECT_EQ(hidden(100, 25), 0.75);
    EXPECT_EQ(hidden(100, 200), 0.0);
    EXPECT_EQ(hidden(0, 5), 1.0);
}

TEST(Options, OptionsThatDifferBetweenRanksAreNamed) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        EXPECT_THAT(
            error_text([&] { Model model(group, {1}, {.bucket_bytes = 100 + group.rank()}); }),
            HasSubstr("rank 1 chose other options than rank 0"));
    });
}

TEST(Options, TensorsOnAnotherDeviceThanTheGroupAreRefused) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    std::vector<float> value(2);
    const TensorView elsewhere(value.data(), 2, DType::float32, {DeviceKind::cuda, 1});
    EXPECT_THAT(error_text([&] { DistributedDataParallel ddp(group, {{elsewhere}}); }),
                HasSubstr("parameter 0 is on cuda:1, but the group is on cpu"));
    EXPECT_THAT(error_text([&] { DistributedDataParallel ddp(group, {}, {elsewhere}); }),
                HasSubstr("buffer 0 is on cuda:1"));
}

}  // namespace
}  // namespace regroup
