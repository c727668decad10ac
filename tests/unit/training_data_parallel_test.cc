// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

// Parameters of the given counts whose values and gradients are vectors.
struct Replica {
    explicit Replica(const std::vector<std::size_t>& counts) {
        for (const std::size_t count : counts) {
            values.emplace_back(count);
            gradients.emplace_back(count);
        }
    }
    std::vector<Parameter> parameters() {
        std::vector<Parameter> list;
        list.reserve(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            list.push_back({std::span(values[i]), std::span(gradients[i])});
        }
        return list;
    }
    // Different for every rank, parameter and element.
    static float gradient(std::size_t rank, std::size_t parameter, std::size_t element) {
        return static_cast<float>(100 * (rank + 1) + 10 * parameter + element);
    }
    void fill_gradients(std::size_t rank) {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            for (std::size_t k = 0; k < gradients[i].size(); ++k) {
                gradients[i][k] = gradient(rank, i, k);
            }
        }
    }
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
};

TEST(DistributedDataParallel, AllReplicasStartWithTheValuesAndBuffersOfRankZero) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        Replica replica({3, 0, 2});
        std::vector<double> running_mean(4, group.rank());
        for (auto& values : replica.values) {
            std::ranges::fill(values, static_cast<float>(group.rank()) + 7.0F);
        }
        DistributedDataParallel ddp(group, replica.parameters(), {std::span(running_mean)});
        EXPECT_THAT(replica.values[0], ElementsAre(7, 7, 7));
        EXPECT_THAT(replica.values[2], ElementsAre(7, 7));
        EXPECT_THAT(running_mean, ElementsAre(0, 0, 0, 0));

        running_mean[0] += 1 + group.rank();
        ddp.broadcast_buffers();
        EXPECT_THAT(running_mean, ElementsAre(1, 0, 0, 0));
    });
}

// Each gradient is padded to 16 values, and two of them fit into a bucket.
TEST(DistributedDataParallel, CompleteBucketStartsAtOnce) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Replica replica({1, 2, 3, 4});
    DistributedDataParallel ddp(group, replica.parameters(), {}, {.bucket_bytes = 128});
    ASSERT_EQ(ddp.buckets().size(), 2U);
    ddp.gradient_ready(3);
    EXPECT_THAT(group.reduced_counts(), ElementsAre());
    ddp.gradient_ready(2);
    EXPECT_THAT(group.reduced_counts(), ElementsAre(32));
    ddp.gradient_ready(1);
    EXPECT_THAT(group.reduced_counts(), ElementsAre(32));
    ddp.gradient_ready(0);
    EXPECT_THAT(group.reduced_counts(), ElementsAre(32, 32));
    ddp.finish_step();
    ddp.reduce_gradients();
    EXPECT_THAT(group.reduced_counts(), ElementsAre(32, 32, 32, 32));
}

TEST(DistributedDataParallel, BucketsAreReducedInTheOrderOfThePlan) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Replica replica({1, 20, 40});
    DistributedDataParallel ddp(group, replica.parameters(), {}, {.bucket_bytes = 1});
    ddp.gradient_ready(0);
    ddp.gradient_ready(1);
    EXPECT_THAT(group.reduced_counts(), ElementsAre());
    ddp.gradient_ready(2);
    EXPECT_THAT(group.reduced_counts(), ElementsAre(48, 32, 16));
    ddp.finish_step();
}

TEST(DistributedDataParallel, GradientReportedTwiceMissingOrUnknownIsNamed) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Replica replica({1, 1, 1});
    DistributedDataParallel ddp(group, replica.parameters());
    ddp.gradient_ready(2);
    EXPECT_THAT(error_text([&] { ddp.gradient_ready(2); }),
                HasSubstr("invalid_argument: data parallel: gradient 2 was reported ready twice"));
    EXPECT_THAT(error_text([&] { ddp.gradient_ready(3); }), HasSubstr("no gradient 3 among 3"));
    ddp.gradient_ready(0);
    EXPECT_THAT(error_text([&] { ddp.finish_step(); }),
                HasSubstr("gradient 1 was not reported ready in this step (1 of 3 are missing)"));
    ddp.gradient_ready(1);  // The step can still be completed, and the next one begun.
    ddp.finish_step();
    ddp.gradient_ready(2);
    EXPECT_EQ(group.abort_reason(), std::nullopt);
}

TEST(DistributedDataParallel, ParametersThatDoNotFitTheirGradientsOrTheReductionAreRefused) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    std::vector<float> three(3);
    std::vector<float> four(4);
    const Parameter uneven{std::span(three), std::span(four)};
    EXPECT_THAT(error_text([&] { DistributedDataParallel ddp(group, {uneven}); }),
                HasSubstr("parameter 0 has 3 float32 values, but its gradient 4 of float32"));
    const TensorView nowhere{nullptr, 3, DType::float32};
    EXPECT_THAT(error_text([&] { DistributedDataParallel ddp(group, {}, {nowhere}); }),
                HasSubstr("buffer 0 has no data"));
    EXPECT_THAT(error_text([&] {
                    DistributedDataParallel ddp(group, {}, {}, {.reduction = ReduceOp::max});
                }),
                HasSubstr("must be avg or sum"));
}

TEST(DistributedDataParallel, RankWithAnotherModelIsNamedOnEveryRank) {
    FakeWorld world(3);
    run_ranks(world, [](FakeProcessGroup& group) {
        Replica replica({4, group.rank() == 2 ? std::size_t{6} : std::size_t{5}});
        EXPECT_THAT(error_text([&] { DistributedDataParallel ddp(group, replica.parameters()); }),
                    HasSubstr("rank 2 registered 2 parameters with 10 elements, "
                              "rank 0 2 parameters with 9 elements"));
    });
}

TEST(DistributedDataParallel, ValuesOfRankZeroTravelInBatches) {
    FakeWorld world(1);
    FakeProcessGroup group(world, 0);
    Replica replica(std::vector<std::size_t>(600, 1));
    const DistributedDataParallel ddp(group, replica.parameters());
    EXPECT_THAT(group.batch_sizes(), ElementsAre(256, 256, 88));
}

TEST(DistributedDataParallel, FailedBucketLeavesAllGradientsUnapplied) {
    FakeWorld world(2);
    run_ranks(world, [&world](FakeProcessGroup& group) {
        Replica replica({2, 2});
        DistributedDataParallel ddp(group, replica.parameters(), {}, {.bucket_bytes = 8});
        group.barrier().wait();
        world.fail_from(group.sequence() + 1);  // the first bucket arrives, the second does not
        replica.fill_gradients(group.rank());
        const auto before = replica.gradients;
        EXPECT_THAT(error_text([&] { ddp.reduce_gradients(); }),
                    AnyOf(HasSubstr("disconnected"), HasSubstr("fenced")));
        EXPECT_EQ(replica.gradients, before);
    });
}

TEST(DistributedDataParallel, DestructionInTheMiddleOfAStepAbortsTheGroup) {
    FakeWorld world(2);
    run_ranks(world, [](FakeProcessGroup& group) {
        Replica replica({2, 2});
        std::optional<DistributedDataParallel> ddp;
        ddp.emplace(group, replica.parameters(), std::vector<TensorView>{},
                    DataParallelOptions{.bucket_bytes = 8});
        if (group.rank() == 0) {
            ddp->gradient_ready(1);
            ddp.reset();  // must not wait for rank 1, which has not come
            EXPECT_THAT(group.abort_reason().value_or("none"), HasSubstr("given up"));
        } else {
            EXPECT_THAT(error_text([&] {
                            for (;;) {
                                ddp->reduce_gradients();
                            }
                        }),
                        HasSubstr("fenced"));
        }
    });
}

// The check of the data-parallel tutorial: a linear layer, a mean squared error, one step of SGD.
TEST(DistributedDataParallel, ReplicasAreBitIdenticalAfterAStepOnDifferentData) {
    constexpr std::size_t kWidth = 10;
    constexpr std::size_t kBatch = 20;
    constexpr float kLearningRate = 0.001F;
    std::array<double, 2> losses{};
    std::array<std::vector<std::vector<float>>, 2> results;
    FakeWorld world(2);
    run_ranks(world, [&](FakeProcessGroup& group) {
        std::mt19937 random(group.rank() + 1);
        const auto uniform = [&random] { return static_cast<float>(random()) * 0x1p-32F - 0.5F; };
        Replica linear({kWidth * kWidth, kWidth});
        for (auto& values : linear.values) {
            std::ranges::generate(values, uniform);
        }
        DistributedDataParallel ddp(group, linear.parameters());
        const auto initial = linear.values;

        double loss = 0.0;
        for (std::size_t sample = 0; sample < kBatch; ++sample) {
            std::array<float, kWidth> input{};
            std::ranges::generate(input, uniform);
            for (std::size_t row = 0; row < kWidth; ++row) {
                const float* weights = linear.values[0].data() + row * kWidth;
                const float output =
                    std::inner_product(input.begin(), input.end(), weights, linear.values[1][row]);
                const float error = output - uniform();
                loss += static_cast<double>(error * error) / (kWidth * kBatch);
                const float slope = 2.0F * error / (kWidth * kBatch);
                linear.gradients[1][row] += slope;
                for (std::size_t column = 0; column < kWidth; ++column) {
                    linear.gradients[0][row * kWidth + column] += slope * input[column];
                }
            }
        }
        ddp.reduce_gradients();
        for (std::size_t i = 0; i < linear.values.size(); ++i) {
            for (std::size_t k = 0; k < linear.values[i].size(); ++k) {
                linear.values[i][k] -= kLearningRate * linear.gradients[i][k];
            }
        }
        EXPECT_NE(linear.values, initial);
        losses[group.rank()] = loss;
        results[group.rank()] = linear.values;
    });
    EXPECT_NE(losses[0], losses[1]);
    for (std::size_t i = 0; i < results[0].size(); ++i) {
        const auto& [first, second] = std::tie(results[0][i], results[1][i]);
        EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
    }
}

}  // namespace
}  // namespace regroup
