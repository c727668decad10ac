// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel over the real group.
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::World;

constexpr std::size_t kParameterCount = 9;

std::vector<std::vector<float>> make_values(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < kParameterCount; ++i) {
        values.emplace_back(1 + random() % 30000);
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

// A group adds the parts of a bucket in orders of its own, so the buckets as such are what must be
// equal: those of a step, and those same bytes reduced one after the other afterwards.
void check_steps(ProcessGroup& group, const DataParallelOptions& options) {
    auto values = make_values(1);
    DistributedDataParallel ddp(group, parameters_of(values), {}, options);
    std::mt19937 random(group.rank());
    std::vector<std::size_t> order(kParameterCount);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int step = 0; step < 4; ++step) {
        const std::vector<Bucket> plan(ddp.buckets().begin(), ddp.buckets().end());
        std::ranges::shuffle(order, random);
        ddp.zero_gradients();
        for (std::size_t index = 0; index < kParameterCount; ++index) {
            for (float& item : gradient_of(ddp, index)) {
                item = static_cast<float>(random()) * 0x1p-32F - 0.4F;
            }
        }
        std::vector<std::vector<float>> plain;
        for (std::size_t at = 0; at < plan.size(); ++at) {
            std::vector<float>& bucket = plain.emplace_back();
            for (const std::size_t index : plan[at].parameters) {
                const std::span<float> gradient = gradient_of(ddp, index);
                bucket.insert(bucket.end(), gradient.begin(), gradient.end());
                bucket.resize((bucket.size() + 15) / 16 * 16);
            }
        }
        for (const std::size_t index : order) {
            ddp.gradient_ready(index);
        }
        ddp.finish_step();
        for (std::size_t at = 0; at < plan.size(); ++at) {
            group.all_reduce(std::span(plain[at]), options.reduction).wait();
            std::size_t offset = 0;
            for (const std::size_t index : plan[at].parameters) {
                const std::span<float> gradient = gradient_of(ddp, index);
                ASSERT_EQ(
                    std::memcmp(gradient.data(), plain[at].data() + offset, gradient.size_bytes()),
                    0)
                    << "step " << step << ", parameter " << index;
                offset += (gradient.size() + 15) / 16 * 16;
            }
        }
        for (std::size_t index = 0; index < kParameterCount; ++index) {
            for (std::size_t k = 0; k < values[index].size(); ++k) {
                values[index][k] -= 0.1F * gradient_of(ddp, index)[k];
            }
        }
    }
    EXPECT_EQ(ddp.find_replica_difference(), std::nullopt);
}

TEST(DataParallelOverProcessGroup, ResultEqualsPlainReductionOfTheSameBuckets) {
    for (const std::uint32_t world_size : {1U, 2U, 3U, 4U}) {
        for (const std::size_t bucket_bytes : {1U, 50000U, 1000000U}) {
            for (const ReduceOp reduction : {ReduceOp::avg, ReduceOp::sum}) {
                run_ranks(world_size, [&](ProcessGroup& group) {
                    check_steps(group, {.bucket_bytes = bucket_bytes,
                                        .first_bucket_bytes = bucket_bytes / 4,
                                        .reduction = reduction});
                });
            }
        }
    }
}

// With two ranks an addition has one order only, so that no split of any size makes a difference.
TEST(DataParallelOverProcessGroup, TwoRanksGetTheSameBitsWithAnyBuckets) {
    std::vector<std::vector<std::vector<float>>> results;
    for (const std::size_t bucket_bytes : {1U, 3000U, 100000U, 100000000U}) {
        std::vector<std::vector<float>> result;
        run_ranks(2, [&](ProcessGroup& group) {
            auto values = make_values(2);
            DistributedDataParallel ddp(group, parameters_of(values), {},
                                        {.bucket_bytes = bucket_bytes});
            std::mt19937 random(7 + group.rank());
            for (std::size_t index = 0; index < kParameterCount; ++index) {
                for (float& item : gradient_of(ddp, index)) {
                    item = static_cast<float>(random()) * 0x1p-32F - 0.4F;
                }
            }
            ddp.reduce_gradients();
            for (std::size_t index = 0; group.rank() == 1 && index < kParameterCount; ++index) {
                const std::span<float> gradient = gradient_of(ddp, index);
                result.emplace_back(gradient.begin(), gradient.end());
            }
        });
        results.push_back(std::move(result));
    }
    for (const auto& result : results) {
        EXPECT_EQ(result, results.front());
    }
}

TEST(DataParallelOverProcessGroup, ModelWithoutParametersIsAllowed) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> empty;
        for (const std::size_t count : {0U, 2U}) {
            const std::vector<Parameter> parameters(count, Parameter{std::span(empty)});
            DistributedDataParallel ddp(group, parameters, {},
                                        {.hook = low_precision_hook(DType::bfloat16)});
            ddp.reduce_gradients();
            ddp.reduce_gradients();
            EXPECT_EQ(ddp.find_replica_difference(), std::nullopt);
        }
    });
}

// Through the real group's own additions in 16 bits.
TEST(DataParallelOverProcessGroup, LowPrecisionWiresGiveTheSameBitsOnAllRanks) {
    for (const DType wire : {DType::float16, DType::bfloat16}) {
        run_ranks(3, [wire](ProcessGroup& group) {
            std::vector<float> value(5000);
            DistributedDataParallel ddp(group, {{std::span(value)}}, {},
                                        {.hook = low_precision_hook(wire)});
            for (int step = 0; step < 2; ++step) {
                const std::span<float> gradient = gradient_of(ddp, 0);
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    gradient[i] = static_cast<float>(i) * (0.5F + static_cast<float>(group.rank()));
                }
                ddp.reduce_gradients();
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    const float exact = static_cast<float>(i) * 1.5F;
                    ASSERT_NEAR(gradient[i], exact, exact * 0x1p-6F + 1e-6F);
                    value[i] += gradient[i];
                }
            }
            EXPECT_EQ(ddp.find_replica_difference(), std::nullopt);
        });
    }
}

TEST(DataParallelOverProcessGroup, StatisticsCountTheTimeOfTheReductions) {
    run_ranks(2, [](ProcessGroup& group) {
        auto values = make_values(3);
        DistributedDataParallel ddp(group, parameters_of(values), {}, {.bucket_bytes = 100000});
        ddp.reduce_gradients();
        const StepStatistics statistics = ddp.statistics();
        EXPECT_EQ(statistics.step, 1U);
        EXPECT_GT(statistics.communication.count(), 0);
        EXPECT_EQ(statistics.bytes, ddp.gradient_memory().bytes);
    });
}

// When the backward pass of a rank throws, the others learn of it at once.
TEST(DataParallelOverProcessGroup, AbandonedStepEndsTheRoundForAll) {
    run_ranks(3, [](ProcessGroup& group) {
        auto values = make_values(4);
        const auto step = [&] {
            DistributedDataParallel ddp(group, parameters_of(values), {}, {.bucket_bytes = 1});
            ddp.reduce_gradients();
            for (std::size_t index = kParameterCount; index-- > 0;) {
                if (group.rank() == 1 && index == 4) {
                    throw Error(Errc::system, "out of memory in the middle of a backward pass");
                }
                ddp.gradient_ready(index);
            }
            ddp.finish_step();
        };
        const auto error = error_of(step);
        ASSERT_TRUE(error.has_value());
        EXPECT_THAT(error->code(), AnyOf(Errc::system, Errc::disconnected, Errc::fenced));
    });
}

}  // namespace
}  // namespace regroup
