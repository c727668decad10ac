// SPDX-License-Identifier: Apache-2.0
//
// How ranks detect that replicas differ, and find the correct one.
#include <regroup/error.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/elastic/dissent.h"
#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/elastic/rank_state.h"
#include "worker_sdk/src/elastic/registered_state.h"

namespace regroup::testing {
namespace {

using elastic::choose_origin;
using elastic::Dissent;
using elastic::find_dissent;
using elastic::RankState;
using elastic::Thing;
using Ranks = std::vector<std::uint32_t>;
using Digests = std::vector<std::optional<std::uint64_t>>;

// ---- Ranks that differ.

TEST(Dissent, RanksWithALessCommonDigestDissent) {
    const Dissent dissent = find_dissent(Digests{7, 8, 8, std::nullopt, 9, 8});
    EXPECT_EQ(dissent.ranks, (Ranks{0, 4}));
    EXPECT_EQ(dissent.witness, 1U);
    EXPECT_TRUE(dissent.is_of(4));
    EXPECT_FALSE(dissent.is_of(3));
}

TEST(Dissent, NoRankDissentsIfAllAgreeOrNoneHasADigest) {
    EXPECT_FALSE(find_dissent(Digests{5, std::nullopt, 5}));
    EXPECT_FALSE(find_dissent(Digests{std::nullopt, 5}));
    EXPECT_FALSE(find_dissent(Digests{std::nullopt, std::nullopt}));
}

TEST(Dissent, AllRanksDissentWithoutAMajority) {
    for (const Digests& digests :
         {Digests{1, 2}, Digests{1, 1, 2, 2}, Digests{1, 2, 3}, Digests{1, 1, 2, 2, 3}}) {
        const Dissent dissent = find_dissent(digests);
        EXPECT_EQ(dissent.ranks.size(), digests.size());
        EXPECT_EQ(dissent.witness, std::nullopt);
    }
}

TEST(Dissent, ReceiverWithAnotherDigestThanTheSourceDissents) {
    const Dissent dissent = find_dissent(std::array<std::uint64_t, 3>{6, 5, 6}, 1);
    EXPECT_EQ(dissent.ranks, (Ranks{0, 2}));
    EXPECT_EQ(dissent.witness, 1U);
}

TEST(Dissent, SentenceNamesTheFirstDifferenceOfEachRank) {
    const std::array<Thing, 2> names{Thing{"weights"}, Thing{"momentum"}};
    const Dissent dissent{.ranks = {0, 2, 3}, .witness = 1};
    const std::array<std::uint64_t, 8> digests{9, 2, 1, 2, 1, 9, 8, 8};
    EXPECT_THAT(describe(dissent, names, digests),
                HasSubstr("\"weights\" of ranks 0, 3, \"momentum\" of rank 2 is not what"));
    EXPECT_THAT(describe(dissent, names, {}),
                HasSubstr("the registered state of ranks 0, 2, 3 is not"));
    const Dissent all{.ranks = {0, 1}, .witness = std::nullopt};
    EXPECT_THAT(describe(all, names, std::array<std::uint64_t, 4>{1, 2, 1, 3}),
                HasSubstr("\"momentum\" of ranks 0, 1 differ, and no value is the more common"));
}

TEST(Dissent, SentenceNamesTheUsualCausesIfTheBytesComeFromTheProgram) {
    const std::array<Thing, 2> things{Thing{"weights"}, Thing{"scheduler", true}};
    const Dissent dissent{.ranks = {1}, .witness = 0};
    EXPECT_THAT(describe(dissent, things, std::array<std::uint64_t, 4>{1, 2, 1, 3}),
                HasSubstr("save function of \"scheduler\" must return the same bytes"));
    EXPECT_THAT(describe(dissent, things, std::array<std::uint64_t, 4>{1, 2, 3, 2}),
                Not(HasSubstr("save function")));
}

TEST(Dissent, SentenceHasNoNamesIfTheGroupBreaks) {
    run_ranks(3, [](ProcessGroup& group) {
        elastic::RegisteredState kept;
        std::vector<float> weights{1, 2};
        kept.add("weights", TensorView(std::span<float>(weights)));
        if (group.rank() == 0) {
            return group.abort("a test");
        }
        const std::string text =
            kept.describe({group, group}, Dissent{.ranks = {2}, .witness = 1}, kept.digests());
        EXPECT_THAT(text, HasSubstr("the registered state of rank 2 is not what the others have"));
    });
}

// ---- The origin of the state of a round.

RankState holder(std::uint64_t step, std::uint64_t digest) {
    return {.step = step,
            .history = 5,
            .layout = 1,
            .condition = elastic::Condition::whole,
            .digest = digest};
}

RankState newcomer(std::uint64_t step = 0) {
    return {.step = step, .history = 9, .layout = 1};
}

TEST(Origin, OriginHoldsTheMajorityStateOfTheRanksThatAreFurthest) {
    const auto origin = choose_origin(
        std::array{holder(8, 66), newcomer(), holder(8, 77), holder(7, 66), holder(8, 77)});
    EXPECT_EQ(origin.rank, 2U);
    EXPECT_EQ(origin.state.digest, 77U);
    EXPECT_EQ(origin.dissent.ranks, Ranks{0});
}

TEST(Origin, OriginIsUnknownIfTheHoldersDisagree) {
    const auto origin = choose_origin(std::array{newcomer(), holder(8, 66), holder(8, 77)});
    EXPECT_EQ(origin.dissent.ranks, (Ranks{1, 2}));
    EXPECT_EQ(origin.dissent.witness, std::nullopt);
}

TEST(Origin, RanksThatReceiveTheStateHaveNoVote) {
    RankState torn = holder(8, 66);
    torn.condition = elastic::Condition::torn;
    EXPECT_FALSE(choose_origin(std::array{holder(8, 77), torn, holder(7, 5)}).dissent);
    EXPECT_FALSE(choose_origin(std::array{newcomer(), newcomer()}).dissent);
    EXPECT_FALSE(choose_origin(std::array{holder(7, 5), holder(7, 6), newcomer(8)}).dissent);
}

/// Trains without an agent. Rank 1 gets another state than all others.
void run_rank_that_may_differ(const World& world, std::uint32_t rank) {
    std::vector<std::int64_t> count{0};
    const auto loop = elastic::Loop::make({.timeout = kPatience, .compare_every = 1},
                                          context_of_rank(rank, world.size, world.store), nullptr);
    loop->register_state("count", TensorView(std::span<std::int64_t>(count)));
    ElasticCallbacks callbacks;
    callbacks.on_step = [&](ElasticStep& step) {
        step.commit([&] { count[0] = rank == 1 ? 7 : 1; });
    };
    EXPECT_THAT(error_of([&] { loop->run(callbacks); }),
                is_error(Errc::invalid_argument, "\"count\" of rank 1 is not"));
}

TEST(Dissent, AllRanksEndWithoutAnAgent) {
    const World world(3);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < world.size; ++rank) {
        threads.emplace_back([&world, rank] { run_rank_that_may_differ(world, rank); });
    }
}

}  // namespace
}  // namespace regroup::testing
