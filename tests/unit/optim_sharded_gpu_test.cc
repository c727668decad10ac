// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer on a GPU, where a step may fail after its call.
#include <regroup/sharded_optimizer.h>

#include <latch>
#include <memory>
#include <optional>
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

/// Small tensors with shadows, whose gradients are those of a step.
struct Model {
    explicit Model(const Device& device = kGpu, std::size_t tensors = 3) : on(device) {
        for (std::size_t t = 0; t < tensors; ++t) {
            masters.emplace_back(5000, static_cast<float>(t));
            gradients.emplace_back(5000);
            shadows.emplace_back(5000);
        }
    }
    [[nodiscard]] std::vector<OptimizerTensors> tensors() {
        const auto view = [this](auto& values, DType dtype) {
            return TensorView(values.data(), values.size(), dtype, on);
        };
        std::vector<OptimizerTensors> list;
        for (std::size_t t = 0; t < masters.size(); ++t) {
            list.push_back({.master = view(masters[t], DType::float32),
                            .gradient = view(gradients[t], DType::float32),
                            .shadow = view(shadows[t], DType::bfloat16)});
        }
        return list;
    }
    void make_gradients(int step) {
        for (std::vector<float>& gradient : gradients) {
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                gradient[i] = static_cast<float>(i % 7) - static_cast<float>(step);
            }
        }
    }

    Device on;
    std::vector<std::vector<float>> masters;
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<bfloat16>> shadows;
};

/// A rank whose groups come and go.
struct Member {
    void step(int number) {
        model.make_gradients(number);
        optimizer.step();
    }

    Model model;
    ShardedOptimizer optimizer{model.tensors(), AdamOptions{.learning_rate = 0.01}};
};

class ShardedGpu : public ::testing::Test {
   protected:
    [[nodiscard]] Member& member_of(const ProcessGroup& group) { return *members_[group.rank()]; }
    /// The results of each rank in the next group.
    void expect_lost() {
        FakeWorld next(2, kGpu);
        run_ranks(next, [this](FakeProcessGroup& group) {
            EXPECT_THAT(error_text([&] { member_of(group).optimizer.shard(group); }),
                        HasSubstr("a step has failed halfway on rank 0"));
        });
    }
    /// Rank 0 does a step, and its peer is lost before it is done.
    void lose_peer_after(const std::function<void(FakeProcessGroup& group)>& rank_0_then) {
        std::latch issued(2);
        run_ranks(world_, [&](FakeProcessGroup& group) {
            Member& member = member_of(group);
            member.optimizer.shard(group);
            if (group.rank() == 0) {
                member.step(0);  // The host does not wait.
            }
            issued.arrive_and_wait();
            world_.abort();
            if (group.rank() == 0) {
                rank_0_then(group);
            }
        });
    }

    FakeWorld world_{2, kGpu};
    std::vector<std::unique_ptr<Member>> members_ = [] {
        std::vector<std::unique_ptr<Member>> members;
        members.push_back(std::make_unique<Member>());
        members.push_back(std::make_unique<Member>());
        return members;
    }();
};

std::vector<float> masters_after(int steps) {
    Model model({});
    FusedOptimizer optimizer(model.tensors(), AdamOptions{.learning_rate = 0.01});
    for (int step = 0; step < steps; ++step) {
        model.make_gradients(step);
        optimizer.step();
    }
    return model.masters.front();
}

TEST_F(ShardedGpu, StepOnAGroupThatHasEndedThrowsAndLosesTheState) {
    world_.fail_from(2);  // Behind the two of shard().
    run_ranks(world_, [this](FakeProcessGroup& group) {
        Member& member = member_of(group);
        member.optimizer.shard(group);
        EXPECT_THAT(error_text([&] { member.step(0); }), StartsWith("disconnected"));
        EXPECT_THAT(error_text([&] { member.step(1); }), HasSubstr("the state is lost"));
    });
    expect_lost();
}

TEST_F(ShardedGpu, StepThatFailsAfterItsCallIsReportedByTheNextOne) {
    lose_peer_after([this](FakeProcessGroup& group) {
        const std::uint64_t sequence = group.sequence();
        EXPECT_THAT(error_text([&] { member_of(group).step(1); }), StartsWith("fenced"));
        EXPECT_EQ(group.sequence(), sequence);
        EXPECT_EQ(member_of(group).optimizer.step_count(), 1);  // Nothing is added to it.
    });
    expect_lost();
}

TEST_F(ShardedGpu, StepThatFailsAfterItsCallIsNotSaved) {
    lose_peer_after([this](FakeProcessGroup& group) {
        Checkpoint checkpoint;
        EXPECT_THAT(error_text([&] { member_of(group).optimizer.save(checkpoint); }),
                    StartsWith("fenced"));
        EXPECT_FALSE(checkpoint.contains("optimizer.step_count"));
    });
    expect_lost();
}

TEST_F(ShardedGpu, NextGroupKnowsOfAStepThatHasFailedAfterItsCall) {
    lose_peer_after([](FakeProcessGroup& /*group*/) {});
    expect_lost();
}

TEST_F(ShardedGpu, PreparedStepThatFailsIsRolledBack) {
    run_ranks(world_, [this](FakeProcessGroup& group) {
        Member& member = member_of(group);
        member.optimizer.shard(group);
        if (group.rank() == 0) {
            member.model.make_gradients(9);
            EXPECT_THAT(error_text([&] { member.optimizer.prepare(); }), StartsWith("fenced"));
            EXPECT_THAT(error_text([&] { member.optimizer.apply(); }),
                        HasSubstr("without prepare"));
        } else {
            world_.abort();
        }
    });
    FakeWorld next(2, kGpu);
    run_ranks(next, [this](FakeProcessGroup& group) {
        Member& member = member_of(group);
        member.optimizer.shard(group);
        member.model.make_gradients(0);
        member.optimizer.prepare();
        member.optimizer.apply();
        EXPECT_EQ(member.model.masters.front(), masters_after(1));
    });
}

TEST(ShardedGpuAlone, StepsHaveTheBitsOfAWholeOptimizer) {
    FakeWorld world(1, kGpu);
    FakeProcessGroup group(world, 0);
    Member member;
    member.optimizer.shard(group);
    for (int step = 0; step < 3; ++step) {
        member.step(step);
    }
    EXPECT_EQ(member.optimizer.step_count(), 3);
    EXPECT_EQ(member.model.masters.front(), masters_after(3));
    for (std::size_t i = 0; i < 5000; ++i) {
        ASSERT_EQ(member.model.shadows.back()[i], bfloat16(member.model.masters.back()[i]));
    }
}

TEST(ShardedGpuAlone, CollectivesOfManyTensorsGoOutInBatches) {
    FakeWorld world(1, kGpu);
    FakeProcessGroup group(world, 0);
    Model model(kGpu, 300);
    ShardedOptimizer optimizer(model.tensors(), AdamOptions{});
    optimizer.shard(group);
    EXPECT_THAT(group.batch_sizes(), ElementsAre());
    static_cast<void>(optimizer.reduce_gradients());
    EXPECT_THAT(group.batch_sizes(), ElementsAre(256, 44));
    optimizer.step();
    EXPECT_THAT(group.batch_sizes(), ElementsAre(256, 44, 256, 44));
}

}  // namespace
}  // namespace regroup
