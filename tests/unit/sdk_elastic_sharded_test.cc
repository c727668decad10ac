// SPDX-License-Identifier: Apache-2.0
//
// ShardedOptimizer in an ElasticLoop: its moments differ by rank, and yet a changing membership
// changes no bit of the result.
#include <regroup/checkpoint.h>
#include <regroup/sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

constexpr AdamOptions kAdam{.learning_rate = 0.01};

/// A model whose gradients depend on the step and the weights alone, so that all worlds train
/// alike.
struct Model {
    std::vector<float> weights = std::vector<float>(50'000, 1.0F);
    std::vector<float> gradient = std::vector<float>(50'000);

    [[nodiscard]] std::vector<OptimizerTensors> tensors() {
        return {{.master = std::span(weights), .gradient = std::span(gradient)}};
    }
    void pass(std::uint64_t step) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] = std::sin(static_cast<float>(step * 131 + i % 997)) * weights[i];
        }
    }
};

struct ShardedModel : Model {
    explicit ShardedModel(bool replicate) : optimizer(tensors(), kAdam, {replicate}) {}
    ShardedOptimizer optimizer;
};

const std::vector<float>& weights_of_one_process() {
    static const std::vector<float> result = [] {
        Model model;
        FusedOptimizer optimizer(model.tensors(), kAdam);
        for (std::uint64_t step = 0; step < kSteps; ++step) {
            model.pass(step);
            optimizer.step();
        }
        return model.weights;
    }();
    return result;
}

class ElasticSharded : public ElasticLoopTest {
   public:
    ~ElasticSharded() override { join(); }

   protected:
    /// Trains the model of each rank besides what the script says.
    Script trains(Script script = {}) {
        script.before_run = [this](Rank& rank, ElasticLoop& loop) {
            loop.register_state("weights",
                                TensorView(std::span<float>(model_of(rank.name).weights)));
        };
        script.on_round = [this](Rank& rank, const ElasticRound& round) {
            model_of(rank.name).optimizer.shard(*round.group);
        };
        script.before_commit = [this, also = script.before_commit](Rank& rank, ElasticStep& step) {
            model_of(rank.name).pass(step.number());
            model_of(rank.name).optimizer.prepare();
            if (also) {
                also(rank, step);
            }
        };
        script.in_commit = [this, also = script.in_commit](Rank& rank, ElasticStep& step) {
            if (also) {
                also(rank, step);
            }
            model_of(rank.name).optimizer.apply();
        };
        return script;
    }
    ShardedModel& model_of(const std::string& name) {
        const std::lock_guard lock(mutex_);
        std::unique_ptr<ShardedModel>& model = models_[name];
        if (!model) {
            model = std::make_unique<ShardedModel>(replicate_);
        }
        return *model;
    }
    void expect_trained(const Names& names) {
        expect_complete(names);
        for (const std::string& name : names) {
            EXPECT_TRUE(model_of(name).weights == weights_of_one_process()) << name;
        }
    }
    void expect_replicas_survive(Hook Script::* where) {
        replicate_ = true;
        assign({"a", "b", "c", "d"}, trains(dies("b", where, 5)));
        lose("b", {"a", "c", "d"});
        assign({"a", "e", "c", "d"}, trains());
        expect_trained({"a", "c", "d", "e"});
    }

    bool replicate_ = false;

   private:
    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<ShardedModel>> models_;
};

TEST_F(ElasticSharded, ReplicasReplaceTheShardOfALostRankBeforeTheStep) {
    expect_replicas_survive(&Script::before_reduction);
}

TEST_F(ElasticSharded, ReplicasReplaceTheShardOfALostRankWithAPreparedStep) {
    expect_replicas_survive(&Script::before_commit);
}

TEST_F(ElasticSharded, ReplicasReplaceTheShardOfARankLostInTheCommit) {
    expect_replicas_survive(&Script::in_commit);
}

TEST_F(ElasticSharded, WorldShrinksByALostRankWithReplicas) {
    replicate_ = true;
    assign({"a", "b", "c"}, trains(dies("a", &Script::in_commit, 5)));
    lose("a", {"b", "c"});
    assign({"b", "c"});
    expect_trained({"b", "c"});
}

TEST_F(ElasticSharded, LossOfAShardEndsAllRanksWithASentence) {
    assign({"a", "b", "c"}, trains(dies("c", &Script::before_reduction, 5)));
    lose("c", {"a", "b"});
    assign({"a", "b", "d"}, trains());
    for (const char* const name : {"a", "b", "d"}) {
        const Rank& rank = finished(name);
        ASSERT_TRUE(rank.error) << name;
        EXPECT_EQ(rank.error->code(), Errc::system) << name;
        EXPECT_THAT(rank.error->what(), HasSubstr("rank 2 of the 3 ranks")) << name;
        EXPECT_THAT(rank.error->what(), HasSubstr("checkpoint")) << name;
    }
}

TEST_F(ElasticSharded, LeavingRankHandsItsShardOver) {
    Script script = trains();
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == 4 && rank.name == "b") {
            agent_.pause("b", 1, true);
        }
    };
    script.on_departure = [this](Rank& rank, const ElasticDeparture& departure) {
        model_of(rank.name).optimizer.shard(*departure.group, departure.ranks);
    };
    assign({"a", "b", "c"}, script);
    EXPECT_EQ(finished("b").ending, Ending::left);
    for (const char* const name : {"a", "c"}) {
        EXPECT_TRUE(agent_.await<Suspended>(name).at_boundary);
    }
    assign({"a", "c"});
    expect_trained({"a", "c"});
}

TEST_F(ElasticSharded, JoiningRankGetsAShard) {
    Script script = trains();
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == 4 && rank.name == "a") {
            agent_.pause("a", 1, false);
        }
    };
    assign({"a", "b"}, script);
    for (const char* const name : {"a", "b"}) {
        EXPECT_TRUE(agent_.await<Suspended>(name).at_boundary);
    }
    assign({"new", "a", "b"}, trains());
    expect_trained({"a", "b", "new"});
}

// All ranks leave and save together; then the job goes on with another number of ranks.
TEST_F(ElasticSharded, WholeJobLeavesAndGoesOnFromACheckpoint) {
    Checkpoint checkpoint;
    std::atomic<std::uint64_t> saved_at = 0;
    Script script = trains();
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == 4) {
            agent_.pause(rank.name, 1, true);
        }
    };
    script.on_departure = [&](Rank& rank, const ElasticDeparture& departure) {
        Checkpoint mine;
        model_of(rank.name).optimizer.save(mine);
        if (departure.context->rank == 0 && departure.all_leave()) {
            mine.set_tensor("weights", std::span<const float>(model_of(rank.name).weights));
            checkpoint = mine;
            saved_at = departure.step;
        }
    };
    assign({"a", "b", "c"}, script);
    for (const char* const name : {"a", "b", "c"}) {
        EXPECT_EQ(finished(name).ending, Ending::left) << name;
    }
    ASSERT_GT(saved_at, 0U);
    Script resumes = trains();
    resumes.before_run = [&, also = resumes.before_run](Rank& rank, ElasticLoop& loop) {
        also(rank, loop);
        if (rank.name == "e") {  // The only one that finds the file.
            ShardedModel& model = model_of(rank.name);
            checkpoint.read_tensor("weights", std::span(model.weights));
            model.optimizer.load(checkpoint);
            loop.resume_at(saved_at, saved_at * kBatch);
        }
    };
    assign({"d", "e"}, resumes);
    for (const char* const name : {"d", "e"}) {
        EXPECT_EQ(finished(name).ending, Ending::finished) << name;
        EXPECT_TRUE(model_of(name).weights == weights_of_one_process()) << name;
    }
}

}  // namespace
}  // namespace regroup::testing
