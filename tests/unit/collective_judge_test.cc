// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/collective_judge.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kWorld = 11;

/// A rank that has entered `entered` collectives of a group of four, and completed `completed`.
GroupPosition in_group(std::uint64_t entered, std::uint64_t completed, std::uint64_t id = kWorld) {
    GroupPosition position;
    position.id = id;
    position.name = "nccl group " + std::to_string(id);
    position.size = 4;
    position.entered = entered;
    position.completed = completed;
    position.knows_ends = true;
    if (entered > completed) {
        position.stood = 12s;
        position.called = {{completed + 1, "all_reduce", "8 float32"}};
    }
    return position;
}

/// Ranks in ascending order, each with its groups.
std::vector<RankPosition> ranks(std::vector<std::vector<GroupPosition>> groups) {
    std::vector<RankPosition> result;
    for (std::uint32_t rank = 0; rank < groups.size(); ++rank) {
        result.emplace_back();
        result.back().rank = rank;
        result.back().groups = std::move(groups[rank]);
        for (GroupPosition& group : result.back().groups) {
            group.rank = rank;
        }
    }
    return result;
}

CollectiveVerdict judge(const std::vector<RankPosition>& positions, const RankSet& finished = {}) {
    return judge_collectives(positions, 5s, finished,
                             [](std::uint32_t rank) { return rank < 2 ? "a" : "b"; });
}

TEST(CollectiveJudge, RankThatHasNotEnteredIsTheCulprit) {
    auto positions =
        ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(7, 7)}, {in_group(8, 7)}});
    positions[2].activity = "running";
    const CollectiveVerdict verdict = judge(positions);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->rank, 2U);
    EXPECT_EQ(verdict.culprit->kind, HangCulprit::Kind::awaited);
    EXPECT_EQ(verdict.culprit->node, "b");
    EXPECT_EQ(describe(*verdict.culprit),
              "rank 2 on b has not entered all_reduce 8 of nccl group 11 (8 float32), in which "
              "ranks 0-1, 3 wait; it is running");
}

TEST(CollectiveJudge, ShortWaitIsNoHang) {
    auto positions = ranks({{in_group(8, 7)}, {in_group(7, 7)}});
    positions[0].groups[0].stood = 1s;
    EXPECT_FALSE(judge(positions).hangs());
}

TEST(CollectiveJudge, RanksBetweenCollectivesAreNoHang) {
    EXPECT_FALSE(judge(ranks({{in_group(7, 7)}, {in_group(7, 7)}, {in_group(6, 6)}})).hangs());
}

TEST(CollectiveJudge, CulpritIsFoundBehindARankThatWaitsItself) {
    constexpr std::uint64_t kFirst = 21;
    constexpr std::uint64_t kSecond = 22;
    // 0 waits for 1 in the first group, and 1 for 2 in the second one.
    const auto verdict = judge(ranks({{in_group(5, 4, kFirst)},
                                      {in_group(4, 4, kFirst), in_group(9, 8, kSecond)},
                                      {in_group(8, 8, kSecond)}}));
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->rank, 2U);
}

TEST(CollectiveJudge, RanksThatWaitForEachOtherAreFound) {
    constexpr std::uint64_t kFirst = 21;
    constexpr std::uint64_t kSecond = 22;
    const auto verdict = judge(ranks({{in_group(5, 4, kFirst), in_group(8, 8, kSecond)},
                                      {in_group(4, 4, kFirst), in_group(9, 8, kSecond)}}));
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->rank, 1U);
}

TEST(CollectiveJudge, StoppedRankComesFirst) {
    auto positions = ranks({{in_group(8, 7)}, {in_group(6, 6)}, {in_group(7, 7)}});
    positions[2].stopped = true;
    EXPECT_EQ(judge(positions).culprit->rank, 2U);
    positions[2].stopped = false;
    EXPECT_EQ(judge(positions).culprit->rank, 1U);
}

TEST(CollectiveJudge, RankThatCalledSomethingElseIsTheCulprit) {
    auto positions = ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}});
    positions[1].groups[0].called = {{8, "broadcast", "1 int64"}};
    const CollectiveVerdict verdict = judge(positions);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(describe(*verdict.culprit),
              "rank 1 on a called broadcast (1 int64), and the others called all_reduce 8 of nccl "
              "group 11 (8 float32)");
}

TEST(CollectiveJudge, AMissingCallComesBeforeAnotherOne) {
    auto positions = ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(7, 7)}});
    positions[1].groups[0].called = {{8, "broadcast", "1 int64"}};
    EXPECT_EQ(judge(positions).culprit->rank, 2U);
}

TEST(CollectiveJudge, RankThatHasFinishedIsTheCulprit) {
    RankSet finished;
    finished.add(3);
    const auto positions = ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}});
    EXPECT_FALSE(judge(positions).hangs());
    const CollectiveVerdict verdict = judge(positions, finished);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->kind, HangCulprit::Kind::finished);
    EXPECT_EQ(verdict.culprit->rank, 3U);
}

TEST(CollectiveJudge, FinishedRankThatHasNotEnteredIsTheCulprit) {
    RankSet finished;
    finished.add(1);
    finished.add(2);
    auto positions =
        ranks({{in_group(8, 0)}, {in_group(8, 0)}, {in_group(5, 0)}, {in_group(8, 0)}});
    for (RankPosition& rank : positions) {
        rank.groups[0].knows_ends = false;
    }
    const CollectiveVerdict verdict = judge(positions, finished);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->kind, HangCulprit::Kind::finished);
    EXPECT_EQ(verdict.culprit->rank, 2U);
    ASSERT_TRUE(verdict.culprit->wait);
    RankSet others;
    others.add(0);
    others.add(3);
    EXPECT_EQ(verdict.culprit->wait->waiting, others);
    // Without ends, the others may be through.
    positions[2].groups[0].entered = 8;
    EXPECT_FALSE(judge(positions, finished).hangs());
}

TEST(CollectiveJudge, FinishedRankDoesNotWait) {
    RankSet finished;
    finished.add(0);
    auto positions = ranks({{in_group(8, 7)}, {in_group(7, 7)}, {in_group(7, 7)}});
    EXPECT_FALSE(judge(positions, finished).hangs());
    positions[1] = positions[0];
    positions[1].rank = 1;
    EXPECT_EQ(judge(positions, finished).culprit->rank, 2U);
    // All have entered it, and one of them has ended since.
    positions[2].groups = positions[0].groups;
    EXPECT_EQ(judge(positions, finished).culprit->rank, 0U);
    EXPECT_EQ(judge(positions, finished).culprit->kind, HangCulprit::Kind::finished);
}

TEST(CollectiveJudge, WithoutEndsOnlyEntriesCount) {
    auto positions = ranks({{in_group(8, 0)}, {in_group(8, 0)}, {in_group(7, 0)}});
    for (RankPosition& rank : positions) {
        rank.groups[0].knows_ends = false;
    }
    EXPECT_EQ(judge(positions).culprit->rank, 2U);
    positions[2].groups[0].entered = 8;
    EXPECT_FALSE(judge(positions).hangs());  // They may compute.
    for (RankPosition& rank : positions) {
        rank.groups[0].called = {{8, "all_reduce", "8 float32"}};
    }
    positions[1].groups[0].called = {{8, "broadcast", "1 int64"}};
    ASSERT_TRUE(judge(positions).culprit);
    EXPECT_EQ(judge(positions).culprit->rank, 1U);
}

TEST(CollectiveJudge, WithoutEndsTheFirstDifferenceCounts) {
    auto positions = ranks({{in_group(8, 0)}, {in_group(8, 0)}, {in_group(8, 0)}});
    for (RankPosition& rank : positions) {
        rank.groups[0].knows_ends = false;
        rank.groups[0].called = {{8, "all_reduce", "8 float32"},
                                 {5, "all_reduce", "8 float32"},
                                 {6, "broadcast", "1 int64"},
                                 {7, "all_reduce", "8 float32"}};
    }
    EXPECT_FALSE(judge(positions).hangs());
    std::swap(positions[1].groups[0].called[1].kind, positions[1].groups[0].called[2].kind);
    std::swap(positions[1].groups[0].called[1].arguments,
              positions[1].groups[0].called[2].arguments);
    const CollectiveVerdict verdict = judge(positions);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(describe(*verdict.culprit),
              "rank 1 on a called broadcast (1 int64), and the others called all_reduce 5 of nccl "
              "group 11 (8 float32)");
}

TEST(CollectiveJudge, CollectiveThatAllHaveBegunIsTold) {
    auto positions =
        ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}});
    EXPECT_FALSE(judge(positions).hangs());  // The device may be at work before it.
    for (RankPosition& rank : positions) {
        rank.groups[0].knows_starts = true;
        rank.groups[0].started = 8;
    }
    EXPECT_EQ(judge(positions).all_entered,
              "all ranks are in all_reduce 8 of nccl group 11 (8 float32), and it does not end");
}

TEST(CollectiveJudge, RankThatIsStoppedInTheCollectiveIsTheCulprit) {
    auto positions =
        ranks({{in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}, {in_group(8, 7)}});
    for (const bool knows_ends : {true, false}) {
        for (RankPosition& rank : positions) {
            rank.groups[0].knows_ends = knows_ends;
            rank.stopped = false;
        }
        EXPECT_FALSE(judge(positions).hangs());
        positions[2].stopped = true;
        const CollectiveVerdict verdict = judge(positions);
        ASSERT_TRUE(verdict.culprit);
        EXPECT_EQ(describe(*verdict.culprit),
                  "rank 2 on b is stopped, by a signal or by a debugger; ranks 0-1, 3 wait for it "
                  "in all_reduce 8 of nccl group 11 (8 float32)");
    }
}

TEST(CollectiveJudge, PeerOfAMessageIsTheCulprit) {
    auto positions = ranks({{in_group(4, 4)}, {in_group(4, 4)}, {in_group(4, 4)}});
    positions[0].groups[0].peer = 1;
    positions[0].groups[0].stood = 12s;
    positions[1].groups[0].peer = 2;
    positions[1].groups[0].stood = 12s;
    const CollectiveVerdict verdict = judge(positions);
    ASSERT_TRUE(verdict.culprit);
    EXPECT_EQ(verdict.culprit->rank, 2U);
}

}  // namespace
}  // namespace regroup::rendezvous
