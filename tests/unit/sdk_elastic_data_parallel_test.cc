// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel in an ElasticLoop: a loss changes no bit of the result.
#include <regroup/distributed_data_parallel.h>
#include <regroup/join.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

/// A model over TCP, where the place of a gradient in its bucket decides how its sum is rounded.
/// Gradients become ready from the first parameter to the last, against the first plan's guess.
struct BucketModel {
    // In buckets of 48 KiB, in which the gradients lie otherwise than in the first plan.
    static constexpr std::array<std::size_t, 5> kCounts{3000, 5000, 7000, 2000, 4000};

    std::vector<std::vector<float>> weights;
    std::unique_ptr<ProcessGroup> group;  // Of its own, where `in_sub_group`.
    std::unique_ptr<DistributedDataParallel> ddp;
    std::optional<Join> join;
    std::vector<bool> known_from_the_start;  // By round.

    BucketModel() {
        for (const std::size_t count : kCounts) {
            weights.emplace_back(count, 1.0F);
        }
    }

    void rebuild(const ElasticRound& round, bool in_sub_group) {
        std::vector<Parameter> parameters;
        for (std::vector<float>& values : weights) {
            parameters.push_back({std::span(values)});
        }
        join.reset();
        ddp.reset();
        if (in_sub_group) {
            std::vector<std::uint32_t> all(round.context->world_size);
            std::iota(all.begin(), all.end(), 0U);
            group = round.group->new_group(all, "model");
        }
        ddp = std::make_unique<DistributedDataParallel>(
            in_sub_group ? *group : *round.group, parameters, std::vector<TensorView>{},
            DataParallelOptions{.bucket_bytes = std::size_t{48} << 10U,
                                .first_bucket_bytes = std::size_t{48} << 10U,
                                .reduction = ReduceOp::sum});
        known_from_the_start.push_back(ddp->buckets_are_final());
    }

    /// Each rank runs out of input at another step.
    void reduce_unevenly(const ElasticStep& step) {
        if (!join) {
            join.emplace(*ddp);
        }
        const std::array<std::uint64_t, 3> batches{4, kSteps, 9};
        ASSERT_TRUE(join->next(step.number() < batches.at(step.context().rank)));
        join->has_input() ? reduce(step) : ddp->finish_step();
    }

    void reduce(const ElasticStep& step) {
        for (std::size_t index = 0; index < weights.size(); ++index) {
            auto* const gradient = static_cast<float*>(ddp->gradient(index).data);
            for (std::size_t i = 0; i < weights[index].size(); ++i) {
                const auto seed = static_cast<float>(step.number() * 131 + index * 31 + i % 997 +
                                                     std::size_t{step.context().rank} * 7919);
                gradient[i] = std::sin(seed) * weights[index][i];
            }
            ddp->gradient_ready(index);
        }
        ddp->finish_step();
    }

    void apply() {
        for (std::size_t index = 0; index < weights.size(); ++index) {
            const auto* const gradient = static_cast<const float*>(ddp->gradient(index).data);
            for (std::size_t i = 0; i < weights[index].size(); ++i) {
                weights[index][i] -= 0.01F * gradient[i];
            }
        }
    }
};

class ElasticDataParallel : public ElasticLoopTest {
   public:
    ~ElasticDataParallel() override { join(); }

   protected:
    /// Trains the model of each rank besides what the script says.
    Script trains(Script script = {}, bool in_sub_group = false) {
        script.cpu_transport = "tcp";
        script.before_run = [this](Rank& rank, ElasticLoop& loop) {
            BucketModel& model = model_of(rank.name);
            for (std::size_t index = 0; index < model.weights.size(); ++index) {
                loop.register_state("weights " + std::to_string(index),
                                    TensorView(std::span<float>(model.weights[index])));
            }
        };
        script.at_end = [this](Rank& rank) {
            model_of(rank.name).join.reset();
            model_of(rank.name).ddp.reset();
            model_of(rank.name).group.reset();
        };
        script.on_round = [this, in_sub_group](Rank& rank, const ElasticRound& round) {
            model_of(rank.name).rebuild(round, in_sub_group);
        };
        script.before_reduction = [this, also = script.before_reduction](Rank& rank,
                                                                         ElasticStep& step) {
            if (also) {
                also(rank, step);
            }
            if (uneven_) {
                model_of(rank.name).reduce_unevenly(step);
            } else {
                model_of(rank.name).reduce(step);
            }
        };
        script.in_commit = [this](Rank& rank, ElasticStep& /*step*/) {
            model_of(rank.name).apply();
        };
        return script;
    }
    BucketModel& model_of(const std::string& name) {
        const std::lock_guard lock(mutex_);
        std::unique_ptr<BucketModel>& model = models_[name];
        if (!model) {
            model = std::make_unique<BucketModel>();
        }
        return *model;
    }
    /// Expects the weights of a training in which nobody is lost.
    void expect_undisturbed(const Names& names) {
        expect_complete(names);
        assign({"u", "v", "w"}, trains());
        expect_complete({"u", "v", "w"});
        for (const std::string& name : names) {
            EXPECT_TRUE(model_of(name).weights == model_of("u").weights) << name;
        }
    }

    bool uneven_ = false;  ///< Ranks run out of input.

   private:
    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<BucketModel>> models_;
};

TEST_F(ElasticDataParallel, RecoveryChangesNoBit) {
    assign({"a", "b", "c"}, trains(dies("a", &Script::before_reduction, 3)));
    // The new process is rank 0 and dies, too. Then another one is rank 0.
    Script second = trains();
    second.before_commit = [](Rank& /*rank*/, ElasticStep& step) {
        if (step.number() == 7) {
            throw Died{};
        }
    };
    lose("a", {"b", "c"});
    assign({"d", "b", "c"}, second);
    lose("d", {"b", "c"});
    assign({"e", "b", "c"}, trains());
    expect_undisturbed({"b", "c", "e"});
    EXPECT_THAT(model_of("b").known_from_the_start, ElementsAre(false, true, true));
    EXPECT_THAT(model_of("e").known_from_the_start, ElementsAre(true));
}

TEST_F(ElasticDataParallel, SubGroupKeepsItsOrder) {
    assign({"a", "b", "c"}, trains(dies("a", &Script::before_reduction, 3), true));
    lose("a", {"b", "c"});
    assign({"d", "b", "c"}, trains({}, true));
    expect_undisturbed({"b", "c", "d"});
    EXPECT_THAT(model_of("d").known_from_the_start, ElementsAre(true));
}

TEST_F(ElasticDataParallel, RepeatedFirstStepHasTheFirstPlanAgain) {
    assign({"a", "b", "c"}, trains(dies("c", &Script::before_commit, 0)));
    lose("c", {"a", "b"});
    assign({"d", "a", "b"}, trains());
    expect_undisturbed({"a", "b", "d"});
    EXPECT_THAT(model_of("a").known_from_the_start, ElementsAre(false, false));
}

// Rank 0 has no more input when it is replaced, or when it dies itself.
TEST_F(ElasticDataParallel, LossWhileSomeRanksHaveNoInputChangesNoBit) {
    uneven_ = true;
    assign({"a", "b", "c"}, trains(dies("a", &Script::before_reduction, 6)));
    lose("a", {"b", "c"});
    assign({"d", "b", "c"}, trains());
    expect_undisturbed({"b", "c", "d"});
}

}  // namespace
}  // namespace regroup::testing
