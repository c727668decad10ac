// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "worker_sdk/src/elastic/rank_state.h"
#include "worker_sdk/src/elastic/registered_state.h"
#include "worker_sdk/src/elastic/vote.h"

namespace regroup::elastic {
namespace {

// ---- The origin of the state of a round.

RankState survivor(std::uint64_t step) {
    return {.step = step,
            .samples = step * 10,
            .history = 5,
            .layout = 1,
            .condition = Condition::whole};
}

RankState fresh(std::uint64_t step = 0) {
    return {.step = step, .samples = step * 10, .history = 9, .layout = 1};
}

RankState torn(std::uint64_t step) {
    RankState state = survivor(step);
    state.condition = Condition::torn;
    return state;
}

TEST(Origin, OriginIsTheLowestRankThatHasCommittedMost) {
    const std::array rank_states{fresh(), survivor(6), survivor(7), survivor(7)};
    const Origin origin = choose_origin(rank_states);
    EXPECT_EQ(origin.rank, 2U);
    EXPECT_EQ(origin.state, survivor(7));
    EXPECT_TRUE(origin.is_needed);
}

TEST(Origin, SurvivorIsPreferredToAFreshRankOfEqualStep) {
    EXPECT_EQ(choose_origin(std::array{fresh(0), survivor(0)}).rank, 1U);
    EXPECT_EQ(choose_origin(std::array{fresh(8), survivor(8)}).rank, 1U);
}

TEST(Origin, FreshRankWithALaterCheckpointIsTheOrigin) {
    EXPECT_EQ(choose_origin(std::array{survivor(8), fresh(9)}).rank, 1U);
}

TEST(Origin, EqualSurvivorsNeedNoTransfer) {
    EXPECT_FALSE(choose_origin(std::array{survivor(4), survivor(4)}).is_needed);
    EXPECT_FALSE(choose_origin(std::array{fresh()}).is_needed);
    EXPECT_TRUE(choose_origin(std::array{fresh(), fresh()}).is_needed);
    EXPECT_TRUE(choose_origin(std::array{survivor(4), survivor(3)}).is_needed);
}

TEST(Origin, TornRankIsNeverTheOrigin) {
    const Origin origin = choose_origin(std::array{torn(8), survivor(6), torn(7), fresh(9)});
    EXPECT_EQ(origin.rank, 3U);
    EXPECT_EQ(choose_origin(std::array{torn(8), survivor(6), fresh()}).rank, 1U);
    EXPECT_TRUE(choose_origin(std::array{survivor(6), torn(6)}).is_needed);
}

TEST(Origin, StateIsLostIfOnlyTornAndFreshRanksAreLeft) {
    EXPECT_TRUE(is_state_lost(std::array{fresh(), torn(7)}));
    EXPECT_TRUE(is_state_lost(std::array{torn(7), torn(7)}));
    EXPECT_FALSE(is_state_lost(std::array{torn(7), survivor(6), fresh()}));
    EXPECT_FALSE(is_state_lost(std::array{fresh(), fresh(4)}));
}

TEST(Origin, DifferentRegisteredStateIsRefused) {
    RankState other = survivor(4);
    other.layout = 2;
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(choose_origin(std::array{survivor(4), survivor(4), other}));
                }),
                is_error(Errc::invalid_argument, "rank 2 has registered"));
}

// ---- The vote.

TEST(Vote, PauseOfOneRankReachesAllRanks) {
    run_ranks(3, [](ProcessGroup& group) {
        const VoteResult none = vote(group, {.step = 4, .samples = 8});
        EXPECT_FALSE(none.pauses || none.leaves);
        const VoteResult one = vote(group, {.step = 5, .samples = 8, .pauses = group.rank() == 1});
        EXPECT_TRUE(one.pauses && !one.leaves);
        EXPECT_TRUE(vote(group, {.step = 6, .samples = 8, .leaves = group.rank() == 2}).leaves);
    });
}

TEST(Vote, AllRanksLearnWhetherTheirDigestsAgree) {
    run_ranks(3, [](ProcessGroup& group) {
        const std::uint64_t most = ~std::uint64_t{0};
        EXPECT_TRUE(vote(group, {.digest = most}).agrees);
        EXPECT_FALSE(vote(group, {.digest = group.rank() == 1 ? most / 2 : most}).agrees);
    });
}

TEST(Vote, RanksInDifferentCallsAreRefusedOnAllRanks) {
    struct Case {
        Ballot of_one;
        const char* words = "";
    };
    const Ballot right{.step = 4, .samples = 8};
    for (const Case& one : {Case{{.step = 5, .samples = 8}, "between 4 and 5 steps"},
                            Case{{.step = 4, .samples = 9}, "between 8 and 9 samples"},
                            Case{{.step = 4, .samples = 8, .finishes = true}, "finish()"}}) {
        run_ranks(2, [&](ProcessGroup& group) {
            EXPECT_THAT(error_of([&] {
                            static_cast<void>(vote(group, group.rank() == 1 ? one.of_one : right));
                        }),
                        is_error(Errc::invalid_argument, one.words));
        });
    }
}

// ---- Registered state.

struct Replica {
    std::vector<float> weights{1, 2, 3};
    std::vector<std::int64_t> counts{4, 5};
    std::string text = "initial";
    RegisteredState kept;

    Replica() {
        kept.add("weights", TensorView(std::span<float>(weights)));
        kept.add("counts", TensorView(std::span<std::int64_t>(counts)));
        kept.add("empty", TensorView());
        kept.add(
            "text", [this] { return text; },
            [this](std::string_view bytes) { text = std::string(bytes); });
    }
};

TEST(RegisteredState, AllRanksGetTheStateOfTheRoot) {
    run_ranks(3, [](ProcessGroup& group) {
        Replica mine;
        if (group.rank() == 2) {
            mine.weights = {7, 8, 9};
            mine.counts = {-1, -2};
            mine.text = "of rank 2, and longer";
        }
        const Groups groups{group, group};
        mine.kept.broadcast(groups, 2);
        EXPECT_EQ(mine.weights, (std::vector<float>{7, 8, 9}));
        EXPECT_EQ(mine.counts, (std::vector<std::int64_t>{-1, -2}));
        EXPECT_EQ(mine.text, "of rank 2, and longer");
        Replica reference;
        reference.weights = {7, 8, 9};
        reference.counts = {-1, -2};
        reference.text = "of rank 2, and longer";
        EXPECT_EQ(mine.kept.digests().whole, reference.kept.digests().whole);
    });
}

TEST(RegisteredState, DigestsShowTheDifferences) {
    Replica one;
    Replica other;
    EXPECT_EQ(one.kept.digests().whole, other.kept.digests().whole);
    other.counts[1] = 6;
    const Digests here = one.kept.digests();
    const Digests there = other.kept.digests();
    EXPECT_NE(here.whole, there.whole);
    ASSERT_EQ(here.things.size(), 4U);
    for (const std::size_t same : {0U, 2U, 3U}) {
        EXPECT_EQ(here.things[same], there.things[same]) << same;
    }
    EXPECT_NE(here.things[1], there.things[1]);
}

TEST(RegisteredState, LayoutDistinguishesNamesCountsAndTypes) {
    std::vector<float> three(3);
    std::vector<float> four(4);
    std::vector<std::int32_t> whole(3);
    const auto layout = [](const std::string& name, TensorView tensor) {
        RegisteredState kept;
        kept.add(name, tensor);
        return kept.layout();
    };
    const TensorView plain{std::span<float>(three)};
    EXPECT_EQ(layout("a", plain), layout("a", plain));
    EXPECT_NE(layout("a", plain), layout("b", plain));
    EXPECT_NE(layout("a", plain), layout("a", TensorView(std::span<float>(four))));
    EXPECT_NE(layout("a", plain), layout("a", TensorView(std::span<std::int32_t>(whole))));
}

TEST(RegisteredState, RegisteredNameIsRefused) {
    Replica mine;
    EXPECT_THAT(error_of([&] { mine.kept.add("text", TensorView()); }),
                is_error(Errc::invalid_argument));
}

}  // namespace
}  // namespace regroup::elastic
