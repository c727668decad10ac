// SPDX-License-Identifier: Apache-2.0
// Ranks with different numbers of batches.
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/join.h>
#include <regroup/sync_batch_norm.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using Batches = std::vector<std::size_t>;  // By rank.

constexpr std::array<std::size_t, 4> kCounts{16, 40, 7, 300};
constexpr SgdOptions kSgd{.learning_rate = 0.5, .momentum = 0.5};

std::vector<std::vector<float>> make_values() {
    std::vector<std::vector<float>> values;
    for (const std::size_t count : kCounts) {
        values.emplace_back(count, 1.0F);
    }
    return values;
}

std::vector<Parameter> parameters_of(std::vector<std::vector<float>>& values) {
    std::vector<Parameter> parameters;
    for (auto& value : values) {
        parameters.push_back({std::span(value)});
    }
    return parameters;
}

std::span<float> gradient_of(const DistributedDataParallel& ddp, std::size_t index) {
    const TensorView view = ddp.gradient(index);
    return {static_cast<float*>(view.data), view.count};
}

/// The gradient of a batch: small whole numbers, whose sums are exact in every format.
float gradient_at(std::uint32_t rank, std::size_t batch, std::size_t parameter, std::size_t i) {
    return static_cast<float>((std::size_t{rank} * 7 + batch * 5 + parameter * 3 + i) % 13) - 4.0F;
}

bool has_gradient(bool unused_parameters, std::uint32_t rank, std::size_t batch,
                  std::size_t parameter) {
    return !unused_parameters || (rank + batch + parameter) % 3 != 0;
}

/// The average over the ranks that still have a batch, or over all.
float average_at(const Batches& batches, bool unused_parameters, bool divide_by_all,
                 std::size_t step, std::size_t parameter, std::size_t i) {
    float sum = 0.0F;
    std::size_t with_input = 0;
    for (std::uint32_t rank = 0; rank < batches.size(); ++rank) {
        if (step < batches[rank]) {
            ++with_input;
            sum += has_gradient(unused_parameters, rank, step, parameter)
                       ? gradient_at(rank, step, parameter, i)
                       : 0.0F;
        }
    }
    return sum / static_cast<float>(divide_by_all ? batches.size() : with_input);
}

/// Trains as the ranks together do, in one process.
std::vector<std::vector<float>> train_alone(const Batches& batches, bool unused_parameters,
                                            bool divide_by_all) {
    auto values = make_values();
    auto gradients = make_values();
    std::vector<OptimizerTensors> tensors;
    for (std::size_t p = 0; p < values.size(); ++p) {
        tensors.push_back({.master = std::span(values[p]), .gradient = std::span(gradients[p])});
    }
    FusedOptimizer optimizer(tensors, kSgd);
    for (std::size_t step = 0; step < std::ranges::max(batches); ++step) {
        for (std::size_t p = 0; p < values.size(); ++p) {
            for (std::size_t i = 0; i < values[p].size(); ++i) {
                gradients[p][i] = average_at(batches, unused_parameters, divide_by_all, step, p, i);
            }
        }
        optimizer.step();
    }
    return values;
}

struct Training {
    DataParallelOptions ddp{.bucket_bytes = 200, .first_bucket_bytes = 64};
    JoinOptions join{};
    float tolerance = 1e-5F;
};

/// Trains one rank, whose gradients become ready in an order of its own, and returns its steps.
std::size_t train(ProcessGroup& group, const Batches& batches, const Training& training,
                  std::vector<std::vector<float>>& values) {
    DistributedDataParallel ddp(group, parameters_of(values), {}, training.ddp);
    std::vector<OptimizerTensors> tensors;
    for (auto& value : values) {
        tensors.push_back({.master = std::span(value)});
    }
    FusedOptimizer optimizer(tensors, kSgd);
    optimizer.set_gradients(ddp);
    Join join(ddp, training.join);
    std::mt19937 random(group.rank());
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::size_t step = 0;
    for (; join.next(step < batches[group.rank()]); ++step) {
        EXPECT_EQ(join.has_input(), step < batches[group.rank()]);
        // Old gradients of a rank without input must not count, so they stay.
        std::ranges::shuffle(order, random);
        for (const std::size_t p : order) {
            if (!join.has_input() ||
                !has_gradient(training.ddp.unused_parameters, group.rank(), step, p)) {
                continue;
            }
            for (std::size_t i = 0; i < kCounts[p]; ++i) {
                gradient_of(ddp, p)[i] = gradient_at(group.rank(), step, p, i);
            }
            ddp.gradient_ready(p);
        }
        ddp.finish_step();
        optimizer.step();
    }
    EXPECT_EQ(ddp.find_replica_difference(), std::nullopt);
    return step;
}

void expect_ranks_train_as_one_process(const Training& training) {
    const std::vector<Batches> cases{{2, 2},    {3, 1},       {0, 2},       {0, 0},      {4, 0, 2},
                                     {0, 1, 5}, {1, 3, 2, 4}, {0, 0, 3, 0}, {2, 5, 0, 5}};
    for (const Batches& batches : cases) {
        const auto expected = train_alone(batches, training.ddp.unused_parameters,
                                          training.join.divide_by_initial_world_size);
        run_ranks(static_cast<std::uint32_t>(batches.size()), [&](ProcessGroup& group) {
            auto values = make_values();
            EXPECT_EQ(train(group, batches, training, values), std::ranges::max(batches));
            for (std::size_t p = 0; p < values.size(); ++p) {
                for (std::size_t i = 0; i < values[p].size(); ++i) {
                    ASSERT_NEAR(values[p][i], expected[p][i], training.tolerance)
                        << ::testing::PrintToString(batches) << ", parameter " << p << ":" << i;
                }
            }
        });
    }
}

TEST(Join, RanksTrainAsOneProcess) {
    expect_ranks_train_as_one_process({});
    Training fixed;
    fixed.ddp.rebuild_buckets = false;
    expect_ranks_train_as_one_process(fixed);
}

TEST(Join, AveragesMayBeOverTheRanksWithInput) {
    Training training;
    training.join.divide_by_initial_world_size = false;
    expect_ranks_train_as_one_process(training);
}

TEST(Join, ParametersMayBeUnused) {
    Training training;
    training.ddp.unused_parameters = true;
    expect_ranks_train_as_one_process(training);
    training.join.divide_by_initial_world_size = false;
    expect_ranks_train_as_one_process(training);
}

TEST(Join, GradientsMayTravelInLowPrecision) {
    Training training;
    training.tolerance = 0.2F;  // Averages over three ranks are rounded.
    training.ddp.hook = low_precision_hook(DType::float16);
    for (const Batches& batches : {Batches{2, 0, 3}, Batches{0, 4}}) {
        const auto expected = train_alone(batches, false, true);
        run_ranks(static_cast<std::uint32_t>(batches.size()), [&](ProcessGroup& group) {
            Training mine = training;
            mine.ddp.hook = low_precision_hook(DType::float16);
            auto values = make_values();
            train(group, batches, mine, values);
            for (std::size_t p = 0; p < values.size(); ++p) {
                for (std::size_t i = 0; i < values[p].size(); ++i) {
                    ASSERT_NEAR(values[p][i], expected[p][i], training.tolerance);
                }
            }
        });
    }
}

TEST(Join, BucketsFollowTheOrderOfTheFirstRankWithInput) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(4, std::vector<float>(16));
        DistributedDataParallel ddp(group, parameters_of(values), {}, {.bucket_bytes = 128});
        Join join(ddp);
        for (int step = 0; step < 3; ++step) {
            ASSERT_TRUE(join.next(group.rank() != 0));
            EXPECT_THAT(join.ranks_with_input(), ElementsAre(1U, 2U));
            for (std::size_t i = 0; i < 4 && join.has_input(); ++i) {
                const std::size_t index =
                    group.rank() == 1 ? (i * 2 + i / 2) % 4 : i;  // 0, 2, 1, 3
                std::ranges::fill(gradient_of(ddp, index), 3.0F);
                ddp.gradient_ready(index);
            }
            ddp.finish_step();
            EXPECT_THAT(gradient_of(ddp, 3), Each(2.0F));
            // Each bucket in the order of memory.
            EXPECT_THAT(ddp.buckets()[0].parameters, ElementsAre(2, 0));
        }
        EXPECT_FALSE(join.next(false));
    });
}

TEST(Join, WholeStepsAndAccumulatedGradientsCount) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(1, std::vector<float>(2));
        DistributedDataParallel ddp(group, parameters_of(values), {}, {.reduction = ReduceOp::sum});
        Join join(ddp);
        ASSERT_TRUE(join.next(group.rank() == 0));
        std::ranges::fill(gradient_of(ddp, 0), 5.0F);  // On rank 1 left from somewhere.
        ddp.reduce_gradients();
        EXPECT_THAT(gradient_of(ddp, 0), Each(5.0F));

        // Rank 1 has half of an accumulated batch.
        ddp.zero_gradients();
        ASSERT_TRUE(join.next(group.rank() == 0));
        {
            const auto guard = ddp.no_sync();
            std::ranges::fill(gradient_of(ddp, 0), 1.0F);
            ddp.gradient_ready(0);
            ddp.finish_step();
        }
        if (join.has_input()) {
            gradient_of(ddp, 0)[0] += 10.0F;
            ddp.gradient_ready(0);
        }
        ddp.finish_step();
        EXPECT_THAT(gradient_of(ddp, 0), ElementsAre(12.0F, 2.0F));
    });
}

TEST(Join, GradientsOfRanksWithoutInputDoNotCountAsUse) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(2, std::vector<float>(2));
        std::vector<float> own(2, 7.0F);
        DistributedDataParallel ddp(
            group, {{std::span(values[0]), std::span(own)}, {std::span(values[1])}}, {},
            {.unused_parameters = true});
        Join join(ddp);
        ASSERT_TRUE(join.next(group.rank() == 1));
        if (join.has_input()) {
            ddp.gradient_ready(1);
        }
        ddp.finish_step();
        EXPECT_FALSE(ddp.was_used(0));
        EXPECT_TRUE(ddp.was_used(1));
        EXPECT_THAT(own, Each(7.0F));
    });
}

TEST(Join, BuffersComeFromARankWithInput) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(1, std::vector<float>(2));
        std::vector<float> buffer(1);
        DistributedDataParallel ddp(group, parameters_of(values), {std::span(buffer)},
                                    {.broadcast_buffers_each_step = true});
        Join join(ddp);
        const std::vector<std::size_t> batches{1, 0, 3};
        for (std::size_t step = 0; join.next(step < batches[group.rank()]); ++step) {
            if (join.has_input()) {
                buffer[0] = static_cast<float>(10 * step + group.rank());
                ddp.gradient_ready(0);
            }
            ddp.finish_step();
            EXPECT_EQ(buffer[0], step == 0 ? 0.0F : static_cast<float>(10 * step + 2));
        }
    });
}

// The forward pass has collectives: a rank without input gives an empty batch.
TEST(Join, ForwardPassMayHaveCollectives) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(1, std::vector<float>(1));
        DistributedDataParallel ddp(group, parameters_of(values));
        Join join(ddp);
        for (std::size_t step = 0; join.next(step < group.rank()); ++step) {
            const BatchStatistics all =
                sync_batch_statistics(group, {.count = join.has_input() ? 2U : 0U,
                                              .mean = {static_cast<double>(group.rank())},
                                              .variance = {1.0}});
            EXPECT_EQ(all.count, step == 0 ? 4U : 2U);
            EXPECT_EQ(all.mean.front(), step == 0 ? 1.5 : 2.0);
            gradient_of(ddp, 0)[0] = 3.0F;
            ddp.reduce_gradients();
            EXPECT_EQ(gradient_of(ddp, 0)[0], step == 0 ? 2.0F : 1.0F);
        }
    });
}

TEST(Join, EarlyTerminationThrowsOnAllRanksIfItShould) {
    run_ranks(3, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(1, std::vector<float>(2));
        DistributedDataParallel ddp(group, parameters_of(values));
        Join join(ddp, {.throw_on_early_termination = true});
        EXPECT_TRUE(join.next(true));
        ddp.reduce_gradients();
        EXPECT_THAT(error_of([&] { join.next(group.rank() == 1); }),
                    is_error(Errc::invalid_argument, "ranks 0, 2 have no more input"));
        EXPECT_FALSE(join.next(false));  // The group and the wrapper stay usable.
        ddp.reduce_gradients();
    });
}

TEST(Join, MisuseIsRefused) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<std::vector<float>> values(2, std::vector<float>(2));
        DistributedDataParallel ddp(group, parameters_of(values));
        Join join(ddp);
        ASSERT_TRUE(join.next(true));
        ddp.gradient_ready(1);
        EXPECT_THAT(error_of([&] { join.next(true); }), is_error(Errc::invalid_argument));
        ddp.gradient_ready(0);
        ddp.finish_step();
        // After the step with Join: input is required as before.
        ASSERT_TRUE(join.next(group.rank() == 0));
        ddp.reduce_gradients();
        ddp.gradient_ready(0);
        EXPECT_TRUE(error_of([&] { ddp.finish_step(); }));
        ddp.gradient_ready(1);
        ddp.finish_step();

        Join other(ddp, {.divide_by_initial_world_size = group.rank() == 0});
        EXPECT_THAT(error_of([&] { other.next(true); }),
                    is_error("rank 1 chose other JoinOptions"));

        DistributedDataParallel hooked(group, parameters_of(values), {},
                                       {.hook = low_precision_hook(DType::bfloat16)});
        EXPECT_TRUE(error_of([&] { Join(hooked, {.divide_by_initial_world_size = false}); }));
    });
}

}  // namespace
}  // namespace regroup
