// SPDX-License-Identifier: Apache-2.0
// The conclusions of a rank from the standings of the others when a collective has expired.
#include <gtest/gtest.h>

#include "worker_sdk/src/group/standing.h"

namespace regroup {
namespace {

constexpr std::uint64_t kExpired = 5;

class StandingsTest : public ::testing::Test {
   protected:
    /// `rank` has called `called` collectives, and is in the last one if it `is_inside`.
    void hear(std::uint32_t rank, std::uint64_t called, bool is_inside) {
        standings.note(rank,
                       {.version = 1,
                        .called = called,
                        .latest = {.number = called},
                        .is_inside = is_inside ? 1U : 0U},
                       asked_at);
    }
    [[nodiscard]] std::string cause_among(const std::vector<std::uint32_t>& others) const {
        return standings
            .explain({.code = Errc::deadline_exceeded,
                      .cause = "unknown",
                      .expired = {{.number = kExpired, .limit = std::chrono::seconds(2)}}},
                     asked_at, others,
                     [](std::uint32_t rank) { return "rank " + std::to_string(rank); })
            .cause;
    }

    const Instant asked_at = Instant() + std::chrono::seconds(10);
    Standings standings;
};

TEST_F(StandingsTest, RanksThatHaveNotCalledTheCollectiveAreMissing) {
    hear(1, kExpired, true);
    hear(2, kExpired - 1, false);
    hear(3, kExpired + 2, true);
    EXPECT_EQ(cause_among({1, 2, 3}), "rank 2 has not joined in within 2.0 s");
    hear(4, 0, false);
    EXPECT_EQ(cause_among({1, 2, 3, 4}), "rank 2, rank 4 have not joined in within 2.0 s");
}

TEST_F(StandingsTest, RankInAnEarlierCollectiveIsNamedOnlyIfNoOtherIsMissing) {
    hear(1, kExpired - 1, true);
    EXPECT_EQ(cause_among({1}), "rank 1 has not joined in within 2.0 s");
    hear(2, kExpired - 2, false);
    EXPECT_EQ(cause_among({1, 2}), "rank 2 has not joined in within 2.0 s");
    EXPECT_EQ(cause_among({1, 3}),
              "rank 3 did not answer, and the collective is not complete within 2.0 s");
}

TEST_F(StandingsTest, RankThatDoesNotAnswerIsNamedBesidesTheMissing) {
    hear(1, 0, false);
    EXPECT_EQ(cause_among({1, 2}), "rank 1 has not joined in within 2.0 s; rank 2 did not answer");
}

TEST_F(StandingsTest, OldStandingIsNoAnswer) {
    hear(1, kExpired, true);
    const std::vector<std::uint32_t> others{1};
    EXPECT_TRUE(standings.have_answered(others, asked_at + Standings::kAnswerInterval));
    EXPECT_FALSE(standings.have_answered(others, asked_at + 2 * Standings::kAnswerInterval));
}

TEST_F(StandingsTest, CauseStaysIfAllHaveCalledTheCollective) {
    hear(1, kExpired, true);
    EXPECT_EQ(cause_among({1}), "unknown");
}

TEST_F(StandingsTest, OnlyANewerVersionIsNews) {
    EXPECT_TRUE(standings.note(3, {.version = 2}, asked_at));
    EXPECT_FALSE(standings.note(3, {.version = 2}, asked_at));
    EXPECT_FALSE(standings.note(3, {.version = 1}, asked_at));
}

TEST_F(StandingsTest, ManyMissingRanksAreCounted) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t rank = 1; rank <= 11; ++rank) {
        hear(rank, 0, false);
        others.push_back(rank);
    }
    EXPECT_EQ(cause_among(others),
              "rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, rank 8 and 3 more have not "
              "joined in within 2.0 s");
}

TEST(Signatures, DifferIfTheSameNumberIsAnotherCollective) {
    const Signature barrier{.number = 3};
    EXPECT_FALSE(differ(barrier, barrier));
    EXPECT_TRUE(differ(barrier, {.number = 3, .kind = OperationKind::all_reduce}));
    EXPECT_FALSE(differ(barrier, {.number = 4, .kind = OperationKind::all_reduce}));
    EXPECT_FALSE(differ({}, {.kind = OperationKind::all_reduce}));
}

// A rank of another build, or one that is out of its mind.
TEST(StandingTextTest, NumbersThatNameNothingAreUnknown) {
    Standing standing;
    standing.latest.number = 3;
    standing.latest.kind = OperationKind::all_reduce;
    standing.latest.dtype = static_cast<DType>(200);
    standing.latest.reduce_op = static_cast<ReduceOp>(200);
    EXPECT_EQ(describe(standing), "after all_reduce #3 (unknown, 0 x unknown)");
}

}  // namespace
}  // namespace regroup
