// SPDX-License-Identifier: Apache-2.0
//
// Loops with ranks whose state differs.
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

using worker_link::Fatal;

/// `name` changes its registered state after step `step`, outside commit().
Script corrupts(const std::string& name, std::uint64_t step, std::uint64_t compare_every) {
    Script script;
    script.options.compare_every = compare_every;
    script.after_commit = [=](Rank& rank, ElasticStep& now) {
        if (rank.name == name && now.number() == step && rank.round == 1) {
            ++rank.replica.totals[0];
        }
    };
    return script;
}

class ElasticLoopReplicas : public ElasticLoopTest {
   protected:
    void expect_ended(const std::string& name, const std::string& text) {
        ASSERT_TRUE(finished(name).error) << name;
        EXPECT_EQ(finished(name).error->code(), Errc::invalid_argument);
        EXPECT_THAT(finished(name).error->what(), HasSubstr(text));
        const auto fatal = agent_.await<Fatal>(name);
        EXPECT_EQ(fatal.kind, worker_link::FatalKind::error);
        EXPECT_THAT(fatal.text, HasSubstr(text));
    }
};

TEST_F(ElasticLoopReplicas, DifferentReplicaEndsAndTheOthersGoOnWithTheirState) {
    const Script script = corrupts("c", 2, 4);
    assign({"a", "b", "c"}, script);
    expect_ended("c", "\"totals\" of rank 2 is not what the others have");
    rounds_.end({"a", "b"});
    assign({"a", "b", "fresh"}, script);
    expect_complete({"a", "b", "fresh"});
    EXPECT_EQ(finished("fresh").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(2, 4)));
    EXPECT_FALSE(agent_.has_said<Fatal>("a"));
    EXPECT_FALSE(agent_.has_said<Fatal>("b"));
}

TEST_F(ElasticLoopReplicas, TwoReplicasThatDifferBothEnd) {
    assign({"a", "b"}, corrupts("a", 2, 4));
    expect_ended("a", "\"totals\" of ranks 0, 1 differ");
    expect_ended("b", "\"totals\" of ranks 0, 1 differ");
}

TEST_F(ElasticLoopReplicas, DifferentReplicaDoesNotFinish) {
    assign({"a", "b", "c"}, corrupts("c", 2, 0));
    expect_ended("c", "\"totals\" of rank 2 is not what the others have");
    rounds_.end({"a", "b"});
    assign({"a", "b", "fresh"});
    expect_complete({"a", "b", "fresh"});
    EXPECT_EQ(finished("fresh").rounds.front(),
              (std::pair<std::uint64_t, std::uint64_t>(2, kSteps)));
}

TEST_F(ElasticLoopReplicas, NoRankFinishesWithoutAMajority) {
    assign({"a", "b"}, corrupts("a", 2, 0));
    expect_ended("a", "\"totals\" of ranks 0, 1 differ");
    expect_ended("b", "\"totals\" of ranks 0, 1 differ");
}

TEST_F(ElasticLoopReplicas, LossDuringTheLastComparisonIsRecoveredFrom) {
    Script script;
    script.on_save = [](Rank& rank) {
        if (rank.name == "c" && rank.replica.history.size() == kSteps) {
            throw Died{};
        }
    };
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    assign({"a", "b"});
    expect_complete({"a", "b"});
}

TEST_F(ElasticLoopReplicas, DifferentReplicaIsFoundBeforeALeavingNodeSaves) {
    Script script = corrupts("a", 2, 0);
    bool saved = false;
    script.before_reduction = [this](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 4) {
            agent_.pause("b", rank.round, true);
        }
    };
    script.on_leave = [&](Rank& /*rank*/, const ElasticLeave& /*leave*/) { saved = true; };
    assign({"a", "b"}, script);
    expect_ended("a", "\"totals\" of ranks 0, 1 differ");
    expect_ended("b", "\"totals\" of ranks 0, 1 differ");
    EXPECT_FALSE(saved);
}

TEST_F(ElasticLoopReplicas, LossDuringAComparisonProvesNothing) {
    // The next round compares before it sends any state, and the rank that differs comes first.
    Script script = corrupts("c", 2, 4);
    script.on_save = [this](Rank& rank) {
        if (rank.name == "d" && rank.round == 1) {
            // All ranks must have committed the step: a rank that is behind is not compared.
            for (const char* const other : {"a", "b", "c"}) {
                while (agent_.page(other).step < 4) {
                    std::this_thread::yield();
                }
            }
            throw Died{};
        }
    };
    assign({"a", "b", "c", "d"}, script);
    lose("d", {"a", "b", "c"});
    assign({"c", "a", "b", "fresh"}, script);
    expect_ended("c", "\"totals\" of rank 0 is not what the others have");
    rounds_.end({"a", "b", "fresh"});
    assign({"fresh", "a", "b"});
    expect_complete({"a", "b", "fresh"});
    EXPECT_EQ(finished("a").rounds.back(), (std::pair<std::uint64_t, std::uint64_t>(3, 4)));
}

TEST_F(ElasticLoopReplicas, HoldersThatDisagreeSendNothing) {
    Script script = corrupts("a", 2, 0);
    script.before_commit = dies("c", &Script::before_commit, 5).before_commit;
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    assign({"a", "b", "fresh"});
    expect_ended("a", "\"totals\" of ranks 0, 1 differ");
    expect_ended("b", "\"totals\" of ranks 0, 1 differ");
    rounds_.end({"fresh"});
    assign({"fresh"});
    expect_complete({"fresh"});
    EXPECT_EQ(finished("fresh").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(3, 0)));
}

// Like running means: each rank changes its own in the step, and all are made equal before commit.
TEST_F(ElasticLoopReplicas, BufferThatALostStepHasChangedIsRestored) {
    std::map<std::string, std::vector<double>> means;
    for (const char* const name : {"a", "b", "c", "fresh"}) {
        means[name] = {0.0};
    }
    Script script;
    script.before_run = [&](Rank& rank, ElasticLoop& loop) {
        loop.register_buffer("mean", TensorView(std::span<double>(means.at(rank.name))));
    };
    const Hook death = dies("c", &Script::before_reduction, 5).before_reduction;
    script.before_reduction = [&, death](Rank& rank, ElasticStep& step) {
        means.at(rank.name)[0] += 0.001 * (step.context().rank + 1);
        death(rank, step);
    };
    script.before_commit = [&](Rank& rank, ElasticStep& /*step*/) {
        double& mean = means.at(rank.name)[0];
        mean = std::floor(mean) + 1;
    };
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    assign({"a", "b", "fresh"}, script);
    expect_complete({"a", "b", "fresh"});
    for (const char* const name : {"a", "b", "fresh"}) {
        EXPECT_EQ(means.at(name)[0], static_cast<double>(kSteps)) << name;
    }
}

TEST_F(ElasticLoopReplicas, BuffersAreComparedLikeTheRest) {
    std::map<std::string, std::vector<double>> means{{"a", {0.0}}, {"b", {0.0}}};
    Script script;
    script.before_run = [&](Rank& rank, ElasticLoop& loop) {
        loop.register_buffer("mean", TensorView(std::span<double>(means.at(rank.name))));
    };
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        means.at(rank.name)[0] += step.context().rank + 1;
    };
    assign({"a", "b"}, script);
    expect_ended("a", "\"mean\" of ranks 0, 1 differ");
    expect_ended("b", "\"mean\" of ranks 0, 1 differ");
}

TEST_F(ElasticLoopReplicas, ReceiverOfADamagedStateEnds) {
    Script lossy;
    lossy.on_save = [](Rank& rank) { rank.replica.history = "lost"; };
    const auto places = rounds_.begin(3);
    start("a", places[0]);
    start("b", places[1], lossy);
    start("c", places[2]);
    expect_ended("b", "\"history\" of rank 1 is not what the others have");
    rounds_.end({"a", "c"});
    assign({"a", "c"});
    expect_complete({"a", "c"});
}

}  // namespace
}  // namespace regroup::testing
