// SPDX-License-Identifier: Apache-2.0
#include <regroup/clip_grad_norm.h>
#include <regroup/sharded_optimizer.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/unit/optim_sharded_model.h"
#include "worker_sdk/src/optim/shard_plan.h"

namespace regroup {
namespace {

using namespace sharded;
using optim::FlatLayout;
using optim::Range;

TEST(ShardPlan, ShardsCoverEverythingAndBeginAtChunks) {
    const FlatLayout layout(kCounts);
    for (std::size_t count = 1; count < 40; ++count) {
        const std::vector<Range> shards = layout.shards(count);
        ASSERT_EQ(shards.size(), count);
        std::size_t at = 0;
        for (const Range& shard : shards) {
            EXPECT_EQ(shard.first, at);
            EXPECT_LE(shard.first, shard.last);
            EXPECT_LE(shard.count(), layout.total() / count + 2 * optim::kShardChunk);
            at = shard.last;
            for (std::size_t t = 0; t < kCounts.size(); ++t) {
                const Range part = layout.part(t, shard);
                EXPECT_TRUE(part.count() == 0 || part.first % optim::kShardChunk == 0);
            }
        }
        EXPECT_EQ(at, layout.total());
    }
}

TEST(ShardPlan, RanksKeepWhatTheyHaveAndGetTheRest) {
    using Ranges = std::vector<Range>;
    const std::vector<Ranges> held{{{0, 50}}, {{50, 100}}, {}};
    const std::vector<Ranges> wanted{{{0, 30}}, {{30, 60}}, {{60, 100}}};
    const optim::TransferPlan plan = plan_transfers(held, wanted);
    EXPECT_FALSE(plan.lost);
    EXPECT_THAT(plan.transfers,
                ElementsAre(optim::Transfer{0, 0, {0, 30}}, optim::Transfer{0, 1, {30, 50}},
                            optim::Transfer{1, 1, {50, 60}}, optim::Transfer{1, 2, {60, 100}}));
    const std::vector<Ranges> without{{{0, 50}}, {}, {}};
    EXPECT_EQ(plan_transfers(without, wanted).lost, (Range{50, 60}));
}

TEST(ShardedOptimizer, StepsHaveTheBitsOfAWholeOptimizer) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 5);
        for (std::uint32_t world_size = 1; world_size <= 4; ++world_size) {
            for (const bool replicate : {false, true}) {
                run_ranks(world_size, [&](ProcessGroup& group) {
                    Model model;
                    auto optimizer =
                        make<ShardedOptimizer>(model, options, ShardOptions{replicate});
                    optimizer.shard(group);
                    train(model, optimizer, 0, 5);
                    expect_same(model, *expected);
                    EXPECT_EQ(optimizer.step_count(), 5);
                });
            }
        }
    }
}

TEST(ShardedOptimizer, EachRankHoldsItsPartOfTheMoments) {
    constexpr std::size_t kCount = 1'000'000;
    constexpr std::size_t kSlack = 2 * optim::kShardChunk;
    for (const std::uint32_t world_size : {1U, 2U, 4U}) {
        std::mutex mutex;
        std::size_t sum = 0;
        run_ranks(world_size, [&](ProcessGroup& group) {
            Model model({kCount});
            ShardedOptimizer optimizer(model.tensors(), AdamOptions{});
            optimizer.shard(group);
            const std::size_t held = moment_bytes(optimizer) / (2 * sizeof(float));
            EXPECT_LE(held, kCount / world_size + kSlack);
            EXPECT_GE(held + kSlack, kCount / world_size);
            const std::lock_guard lock(mutex);
            sum += held;
        });
        EXPECT_EQ(sum, kCount);  // A multiple of 16.
    }
}

TEST(ShardedOptimizer, ScaledGradientsAndOverflowsCountAsInAWholeOptimizer) {
    const auto steps = [](Model& model, auto& optimizer) {
        GradScaler scaler({.init_scale = 64.0});
        for (std::uint64_t step = 0; step < 4; ++step) {
            model.make_gradients(step);
            if (step == 1) {
                model.gradients[4][7] = std::numeric_limits<float>::infinity();
            }
            for (const auto& gradient : model.gradients) {
                scaler.check(std::span(gradient));
            }
            optimizer.step(scaler);
            scaler.update();
        }
        EXPECT_EQ(optimizer.step_count(), 3);
    };
    Model expected;
    auto whole = make<FusedOptimizer>(expected, kOptions[2]);
    steps(expected, whole);
    run_ranks(3, [&](ProcessGroup& group) {
        Model model;
        auto optimizer = make<ShardedOptimizer>(model, kOptions[2]);
        optimizer.shard(group);
        steps(model, optimizer);
        expect_same(model, expected);
    });
}

TEST(ShardedOptimizer, PreparedStepChangesNothingUntilItIsApplied) {
    for (const Options& options : kOptions) {
        const auto expected = trained_whole(options, 3);
        const auto before = trained_whole(options, 2);
        run_ranks(3, [&](ProcessGroup& group) {
            Model model;
            auto optimizer = make<ShardedOptimizer>(model, options);
            optimizer.shard(group);
            train(model, optimizer, 0, 2);
            // Steps that are given up.
            model.make_gradients(9);
            optimizer.prepare();
            model.make_gradients(8);
            optimizer.prepare();
            expect_same(model, *before);
            Checkpoint checkpoint;
            EXPECT_TRUE(error_of([&] { optimizer.save(checkpoint); }));
            model.make_gradients(2);
            optimizer.set_learning_rate(0.01 / 3);
            optimizer.prepare();
            expect_same(model, *before);
            optimizer.apply();
            expect_same(model, *expected);
            EXPECT_EQ(optimizer.step_count(), 3);
            EXPECT_TRUE(error_of([&] { optimizer.apply(); }));
        });
    }
}

// Over shared memory every sum is in rank order, wherever an element lies.
TEST(ShardedOptimizer, ReducedShardsOfGradientsHaveTheBitsOfAnAllReduce) {
    constexpr std::uint32_t kWorld = 3;
    const AdamOptions options{.learning_rate = 0.01};
    run_ranks(kWorld, [&](ProcessGroup& group) {
        Model plain;
        FusedOptimizer whole(plain.tensors(), options);
        Model model;
        ShardedOptimizer optimizer(model.tensors(), options);
        optimizer.shard(group);
        for (std::uint64_t step = 0; step < 4; ++step) {
            model.make_gradients(step * kWorld + group.rank());
            plain.gradients = model.gradients;
            for (auto& gradient : plain.gradients) {
                group.all_reduce(std::span(gradient), ReduceOp::avg).wait();
            }
            std::vector<TensorView> all(plain.gradients.begin(), plain.gradients.end());
            const double norm = clip_grad_norm(all, 0.5);
            whole.step();

            const auto untouched = model.gradients;
            const std::vector<TensorView> mine = optimizer.reduce_gradients();
            EXPECT_EQ(clip_grad_norm(mine, 0.5, {.shards_of = &group}), norm);
            optimizer.step();
            EXPECT_TRUE(model.gradients == untouched);
            const char* const transport = std::getenv("REGROUP_CPU_TRANSPORT");
            if (transport == nullptr || transport != std::string("tcp")) {
                expect_same(model, plain);
            }
        }
        // A step without a reduction uses the whole gradients again.
        model.make_gradients(50);
        plain.gradients = model.gradients;
        plain.masters = model.masters;
        whole.step();
        optimizer.step();
        expect_same(model, plain);
    });
}

TEST(ShardedOptimizer, EveryOptionButTheLearningRateMustBeTheSame) {
    const std::vector<Options> adam{
        AdamOptions{},
        AdamOptions{.beta1 = 0.8},
        AdamOptions{.beta2 = 0.99},
        AdamOptions{.epsilon = 1e-6},
        AdamOptions{.weight_decay = 0.1},
        AdamOptions{.weight_decay = 0.1, .decoupled_weight_decay = true}};
    const std::vector<Options> sgd{SgdOptions{.momentum = 0.9}, SgdOptions{.momentum = 0.8},
                                   SgdOptions{.momentum = 0.9, .dampening = 0.1},
                                   SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
                                   SgdOptions{.momentum = 0.9, .nesterov = true}};
    run_ranks(2, [&](ProcessGroup& group) {
        Model model({10});
        for (const std::vector<Options>& options : {adam, sgd}) {
            for (std::size_t i = 0; i + 1 < options.size(); ++i) {
                auto optimizer = make<ShardedOptimizer>(model, options[i + group.rank()]);
                EXPECT_THAT(error_of([&] { optimizer.shard(group); }),
                            is_error("rank 1 has other tensors or options"))
                    << "options " << i;
            }
        }
        AdamOptions mine{.learning_rate = 0.5};
        mine.learning_rate /= group.rank() + 1;
        auto optimizer = make<ShardedOptimizer>(model, mine);
        optimizer.shard(group);
        EXPECT_EQ(optimizer.learning_rate(), 0.5);
    });
}

TEST(ShardedOptimizer, MisuseIsRefused) {
    run_ranks(2, [](ProcessGroup& group) {
        Model model;
        auto optimizer = make<ShardedOptimizer>(model, kOptions[2], ShardOptions{true});
        EXPECT_THAT(error_of([&] { optimizer.step(); })->what(), HasSubstr("shard()"));
        optimizer.shard(group);
        EXPECT_THAT(error_of([&] { static_cast<void>(optimizer.reduce_gradients()); })->what(),
                    HasSubstr("replicate"));

        auto other = make<ShardedOptimizer>(model, kOptions[group.rank() + 1]);
        EXPECT_THAT(error_of([&] { other.shard(group); })->what(),
                    HasSubstr("rank 1 has other tensors or options"));

        std::vector<float> values(5);
        ShardedOptimizer missing({{.master = std::span(values)}}, AdamOptions{});
        missing.shard(group);
        EXPECT_THAT(error_of([&] { missing.step(); })->what(), HasSubstr("set_gradients"));
        const std::vector<ConstTensorView> given{std::span(values)};
        missing.set_gradients(given);
        missing.step();
        EXPECT_TRUE(error_of([&] {
            missing.set_gradients(std::vector<ConstTensorView>{std::span(values).first(2)});
        }));
        EXPECT_TRUE(error_of([&] { ShardedOptimizer({}, AdamOptions{}); }));
        EXPECT_TRUE(error_of(
            [&] { ShardedOptimizer({{.master = std::span(values)}}, AdamOptions{.beta1 = 2.0}); }));
    });
}

}  // namespace
}  // namespace regroup
