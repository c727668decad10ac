// SPDX-License-Identifier: Apache-2.0
//
// A loop that loses peers at each point of a step and of the forming of a round.
#include <gtest/gtest.h>

#include "tests/support/connections.h"
#include "tests/unit/sdk_elastic_ranks.h"

namespace regroup::testing {
namespace {

TEST_F(ElasticLoopTest, BothEndsReportABrokenConnectionAtOnce) {
    const auto places = rounds_.begin(2);
    std::promise<void> both_have_spoken;
    const std::shared_future<void> released = both_have_spoken.get_future().share();
    Script script;
    script.before_reduction = [port = places[0].place.master_port, released](Rank& rank,
                                                                             ElasticStep& step) {
        if (rank.name == "b" && step.number() == 3 && rank.round == 1) {
            sever_connections(port);
            // The ranks share memory, so all steps may end before a thread reads a connection.
            released.wait_for(kPatience);
        }
    };
    start("a", places[0], script);
    start("b", places[1], script);
    const auto from_a = agent_.await<worker_link::PeerLost>("a");
    EXPECT_EQ(from_a, (worker_link::PeerLost{1, 1, from_a.text}));
    EXPECT_FALSE(from_a.text.empty());
    const auto from_b = agent_.await<worker_link::PeerLost>("b");
    EXPECT_EQ(from_b, (worker_link::PeerLost{1, 0, from_b.text}));
    both_have_spoken.set_value();
    rounds_.end({"a", "b"});
    assign({"a", "b"});
    expect_complete({"a", "b"});
}

TEST_F(ElasticLoopTest, UndisturbedTrainingFinishes) {
    assign({"a", "b", "c"});
    expect_complete({"a", "b", "c"});
    EXPECT_EQ(finished("a").rounds.size(), 1U);
    EXPECT_EQ(agent_.await<Resumed>("a").step, 1U);
    // After the training the process counts as an ordinary program.
    EXPECT_EQ(agent_.page("a").finished, 1U);
    EXPECT_FALSE(agent_.await<worker_link::Hello>("a").elastic);
}

class ElasticLoopDeath : public ElasticLoopTest,
                         public ::testing::WithParamInterface<Hook Script::*> {};

INSTANTIATE_TEST_SUITE_P(BeforeTheReductionAndTheVote, ElasticLoopDeath,
                         ::testing::Values(&Script::before_reduction, &Script::before_commit));

TEST_P(ElasticLoopDeath, StepOfADeadPeerIsRepeatedWithoutIt) {
    assign({"a", "b", "c"}, dies("b", GetParam(), 5));
    lose("b", {"a", "c"});
    assign({"a", "c"});
    expect_complete({"a", "c"});
    EXPECT_EQ(finished("a").rounds.back(), (std::pair<std::uint64_t, std::uint64_t>(2, 5)));
}

TEST_F(ElasticLoopTest, RanksGoBackToTheStepThatTheyHaveLoaded) {
    constexpr std::uint64_t kSaved = 3;
    struct Place {
        ElasticLoop* loop = nullptr;
        Replica saved{};
    };
    std::map<std::string, Place> places{{"a", {}}, {"b", {}}, {"c", {}}};
    Script script = dies("c", &Script::before_commit, 5);
    script.before_run = [&](Rank& rank, ElasticLoop& loop) { places.at(rank.name).loop = &loop; };
    script.before_reduction = [&](Rank& rank, ElasticStep& step) {
        if (rank.round == 1 && step.number() == kSaved) {
            places.at(rank.name).saved = rank.replica;
        }
    };
    script.on_round = [&](Rank& rank, const ElasticRound& round) {
        if (!round.first) {
            EXPECT_EQ(round.step, 5U);
            rank.replica = places.at(rank.name).saved;
            places.at(rank.name).loop->resume_at(kSaved, kSaved * kBatch);
            EXPECT_EQ(round.step, kSaved);
        }
    };
    script.after_commit = [&](Rank& rank, ElasticStep& step) {
        EXPECT_THROW(places.at(rank.name).loop->resume_at(0, 0), Error);
        EXPECT_FALSE(step.pauses());
    };
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    assign({"a", "b"});
    expect_complete({"a", "b"});
}

TEST_F(ElasticLoopTest, StepOfAPeerThatDiesAfterItsCommitIsRepeated) {
    assign({"a", "b", "c"}, dies("c", &Script::after_commit, 5));
    lose("c", {"a", "b"});
    assign({"fresh", "a", "b"});
    expect_complete({"fresh", "a", "b"});
}

TEST_F(ElasticLoopTest, FreshRankGetsAllStateFromASurvivor) {
    Script script = dies("a", &Script::before_commit, 7);
    assign({"a", "b"}, script);
    lose("a", {"b"});
    assign({"fresh", "b"});
    expect_complete({"fresh", "b"});
    EXPECT_EQ(finished("fresh").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(2, 7)));
}

TEST_F(ElasticLoopTest, RankThatIsOneStepBehindGetsTheState) {
    // One rank learns of the end of the round before its commit, the other afterwards.
    Script script;
    script.after_commit = [this](Rank& rank, ElasticStep& step) {
        if (rank.name == "a" && step.number() == 4 && rank.round == 1) {
            agent_.end_round("a", 1, "test");
            agent_.end_round("b", 1, "test");
        }
    };
    assign({"a", "b"}, script);
    for (const char* const name : {"a", "b"}) {
        EXPECT_EQ(agent_.await<Suspended>(name).round, 1U);
    }
    assign({"a", "b"});
    expect_complete({"a", "b"});
}

// ---- A node that leaves.

// Before the boundary, ranks may be at different steps. So a leaving rank saves only when it learns
// that it gets no other place.
class ElasticLoopLeaving : public ElasticLoopTest {
   protected:
    /// A rank dies in step 4, after which b must leave.
    void expect_another_place_when_one_dies(Hook Script::* where) {
        ElasticLeave left;
        Script script;
        script.before_reduction = [this](Rank& rank, ElasticStep& step) {
            const std::uint64_t at = rank.round == 1 ? 4 : 8;
            if (rank.name == "b" && step.number() == at) {
                agent_.pause("b", rank.round, true);
            }
        };
        script.*where = [](Rank& rank, ElasticStep& step) {
            if (rank.name == "c" && step.number() == 4) {
                throw Died{};
            }
        };
        script.on_leave = [&](Rank& /*rank*/, const ElasticLeave& leave) { left = leave; };
        assign({"a", "b", "c"}, script);
        lose("c", {"a", "b"});
        EXPECT_EQ(left.step, 0U) << "it has left already";
        assign({"a", "b"});
        EXPECT_EQ(finished("b").ending, Ending::left);
        EXPECT_EQ(left.step, 9U);
        EXPECT_EQ(agent_.await<Suspended>("a"),
                  (Suspended{.round = rounds_.round(), .step = 9, .at_boundary = true}));
        assign({"a"});
        expect_complete({"a"});
    }
};

TEST_F(ElasticLoopLeaving, LeavingRankTakesPartInAnotherRoundIfAPeerDiesBeforeTheBoundary) {
    expect_another_place_when_one_dies(&Script::before_commit);
}

TEST_F(ElasticLoopLeaving, LeavingRankTakesPartInAnotherRoundIfAPeerDiesAtTheBoundary) {
    expect_another_place_when_one_dies(&Script::in_commit);
}

TEST_F(ElasticLoopTest, AllRanksHearWhoLeavesAndCanStillExchangeData) {
    Script script;
    script.before_reduction = [this](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == 4) {
            agent_.pause("b", rank.round, true);
        }
    };
    std::atomic<int> calls = 0;
    script.on_departure = [&](Rank& rank, const ElasticDeparture& departure) {
        ++calls;
        EXPECT_EQ(departure.ranks, std::vector<std::uint32_t>{1});
        EXPECT_FALSE(departure.all_leave());
        EXPECT_EQ(departure.leaves(departure.context->rank), rank.name == "b");
        EXPECT_EQ(departure.step, rank.replica.history.size());
        std::vector<float> one{1.0F};
        departure.group->all_reduce(std::span(one), ReduceOp::sum).wait();
        EXPECT_EQ(one[0], 3.0F);
    };
    assign({"a", "b", "c"}, script);
    EXPECT_EQ(finished("b").ending, Ending::left);
    for (const char* const name : {"a", "c"}) {
        EXPECT_TRUE(agent_.await<Suspended>(name).at_boundary);
    }
    EXPECT_EQ(calls, 3);
    assign({"a", "c"});
    expect_complete({"a", "c"});
    EXPECT_EQ(calls, 3);
}

TEST_F(ElasticLoopTest, DepartureIsAnnouncedAgainIfAPeerDiesMeanwhile) {
    Script script;
    script.before_reduction = [this](Rank& rank, ElasticStep& step) {
        if (rank.name == "b" && step.number() == (rank.round == 1 ? 4 : 8)) {
            agent_.pause("b", rank.round, true);
        }
    };
    std::atomic<int> calls = 0;
    script.on_departure = [&](Rank& rank, const ElasticDeparture& departure) {
        if (rank.name == "c") {
            throw Died{};
        }
        departure.group->barrier().wait();
        ++calls;
    };
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    assign({"a", "b"});
    EXPECT_EQ(finished("b").ending, Ending::left);
    EXPECT_EQ(finished("b").replica.history.size(), 9U);
    EXPECT_TRUE(agent_.await<Suspended>("a").at_boundary);
    EXPECT_EQ(calls, 2);
    assign({"a"});
    expect_complete({"a"});
}

TEST_F(ElasticLoopTest, RankThatMustLeaveAtOnceSavesItsState) {
    std::optional<ElasticLeave> left;
    Script script = dies("c", &Script::before_commit, 4);
    script.on_leave = [&](Rank& /*rank*/, const ElasticLeave& leave) { left = leave; };
    assign({"a", "b", "c"}, script);
    lose("c", {"a", "b"});
    agent_.let_leave("b", 1);
    EXPECT_EQ(finished("b").ending, Ending::left);
    ASSERT_TRUE(left);
    EXPECT_EQ(left->step, 4U);
    assign({"a"});
    expect_complete({"a"});
}

TEST_F(ElasticLoopTest, SourceOfTheStateDiesDuringTheTransfer) {
    // The loop reads the state of a survivor twice: to compare it, and to send it.
    Script script = dies("a", &Script::before_reduction, 3);
    script.on_save = [asked = 0](Rank& rank) mutable {
        if (rank.name == "b" && rank.round == 1 && rank.replica.history.size() == 3 &&
            ++asked == 2) {
            throw Died{};
        }
    };
    assign({"a", "b", "c"}, script);
    lose("a", {"b", "c"});
    assign({"b", "c", "fresh"});
    lose("b", {"c", "fresh"});
    assign({"c", "fresh"});
    expect_complete({"c", "fresh"});
}

TEST_F(ElasticLoopTest, OnlyTheRankThatFailsFirstReportsItsError) {
    Script script;
    script.before_reduction = [](Rank& rank, ElasticStep& step) {
        if (step.number() != 3 || rank.round != 1) {
            return;
        }
        // Both ranks have passed the last vote.
        if (rank.name == "b") {
            step.group().barrier().wait();
            throw std::runtime_error("no such shard");
        }
        try {
            step.group().barrier().wait();
            step.group().barrier().wait();
        } catch (const Error& error) {
            throw std::runtime_error(std::string("lost: ") + error.what());
        }
    };
    assign({"a", "b"}, script);
    const auto fatal = agent_.await<worker_link::Fatal>("b");
    EXPECT_EQ(fatal.kind, worker_link::FatalKind::error);
    EXPECT_EQ(fatal.text, "no such shard");
    ASSERT_TRUE(finished("b").error);
    ASSERT_TRUE(finished("a").error);
    EXPECT_EQ(std::string(finished("a").error->what()).find("lost: "), 0U);
    EXPECT_FALSE(agent_.has_said<worker_link::Fatal>("a"));
}

TEST_F(ElasticLoopTest, RankWithHalfAStateIsNeverTheSource) {
    // "b" has received the tensors of "a", of step 3, but not the values.
    Script script;
    script.on_save = [](Rank& rank) {
        if (rank.name == "a" && rank.round == 0) {
            throw Died{};
        }
    };
    Script further = script;
    further.resume_at = {3, 3 * kBatch};
    ranks_["a"].replica.totals = {18, 153};
    ranks_["a"].replica.history = "ttt";
    const auto places = rounds_.begin(2);
    start("a", places[0], further);
    start("b", places[1], script);
    lose("a", {"b"});
    EXPECT_EQ(ranks_["b"].replica.history, "");
    EXPECT_EQ(agent_.page("b").step, 0U);
    // A fresh rank cannot help: it has only the initial state.
    assign({"b", "fresh"});
    const auto fatal = agent_.await<worker_link::Fatal>("b");
    EXPECT_EQ(fatal.kind, worker_link::FatalKind::retry);
    ASSERT_TRUE(finished("b").error);
    EXPECT_NE(std::string(finished("b").error->what()).find("half of it"), std::string::npos);
    rounds_.end({"fresh"});
    assign({"fresh"});
    expect_complete({"fresh"});
}

TEST_F(ElasticLoopTest, RankWithTheWholeStateKeepsItThoughTheSourceDiesBeforeTheComparison) {
    // The loop reads the state of the source a second time for the comparison.
    Script script;
    std::atomic<int> asked = 0;
    script.on_save = [&](Rank& rank) {
        if (rank.name == "a" && rank.round == 0 && ++asked == 2) {
            throw Died{};
        }
    };
    Script further = script;
    further.resume_at = {3, 3 * kBatch};
    ranks_["a"].replica.totals = {18, 153};
    ranks_["a"].replica.history = "ttt";
    const auto places = rounds_.begin(2);
    start("a", places[0], further);
    start("b", places[1], script);
    lose("a", {"b"});
    assign({"b"});
    expect_complete({"b"});
    EXPECT_EQ(finished("b").rounds.front(), (std::pair<std::uint64_t, std::uint64_t>(2, 3)));
}

TEST_F(ElasticLoopTest, RoundThatEndsBeforeItHasFormedIsLeftAtOnce) {
    assign({"a", "b"}, dies("b", &Script::before_reduction, 2));
    lose("b", {"a"});
    const auto never = rounds_.begin(2);
    agent_.send("a", never[0]);  // The other rank never comes.
    rounds_.end({"a"});
    assign({"a"});
    expect_complete({"a"});
}

}  // namespace
}  // namespace regroup::testing
