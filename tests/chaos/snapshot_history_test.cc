// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/snapshot_history.h"

#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace regroup::chaos {
namespace {

/// Four nodes with one rank each; the agents of node i are 10 * i + 1, 10 * i + 2, ...
class SnapshotJudge : public ::testing::Test {
   protected:
    /// The ranks of a round whose agents are these.
    void begin(std::uint64_t round, const std::vector<std::int64_t>& agents,
               std::uint64_t folder_step = kNoStep) {
        round_ = round;
        agents_ = agents;
        for (std::uint32_t rank = 0; rank < agents.size(); ++rank) {
            tell(rank, SnapshotEvent::begun, kNoStep);
            records_.back().folder_step = folder_step;
        }
    }
    void tell(std::uint32_t rank, SnapshotEvent event, std::uint64_t step) {
        records_.push_back({.event = event,
                            .rank = rank,
                            .world_size = static_cast<std::uint32_t>(agents_.size()),
                            .node = rank,
                            .nodes = static_cast<std::uint32_t>(agents_.size()),
                            .agent = agents_.at(rank),
                            .round = round_,
                            .step = step,
                            .at = static_cast<std::int64_t>(records_.size())});
    }
    void tell_all(SnapshotEvent event, std::uint64_t step) {
        for (std::uint32_t rank = 0; rank < agents_.size(); ++rank) {
            tell(rank, event, step);
        }
    }
    void load(std::uint64_t step) { tell_all(SnapshotEvent::loaded, step); }
    void save(std::uint64_t step) { tell_all(SnapshotEvent::saved, step); }
    [[nodiscard]] SnapshotHistory judged() const {
        return judge_snapshots({{"all", records_}}, kInterval);
    }
    /// Steps 5 and 10 are saved, 5 is kept, and the agents of the next round are these.
    void saved_ten_kept_five(const std::vector<std::int64_t>& next) {
        begin(1, {1, 11, 21, 31});
        load(kNoStep);
        save(5);
        tell(2, SnapshotEvent::kept, 5);
        save(10);
        begin(2, next);
    }

    static constexpr std::uint64_t kInterval = 5;
    std::uint64_t round_ = 0;
    std::vector<std::int64_t> agents_;
    std::vector<SnapshotRecord> records_;
};

TEST_F(SnapshotJudge, NewestStepOfTheSameAgentsIsRight) {
    saved_ten_kept_five({1, 11, 21, 31});
    load(10);
    const SnapshotHistory history = judged();
    EXPECT_EQ(history.loads, 2U);
    EXPECT_EQ(history.bound, 1U);
    EXPECT_EQ(history.from_other_memory, 0U);
    EXPECT_THAT(history.different, IsEmpty());
    EXPECT_THAT(history.lost, IsEmpty());
    EXPECT_THAT(history.too_old, IsEmpty());
}

TEST_F(SnapshotJudge, NewestStepIsMissedWhereNoNodeWasLost) {
    saved_ten_kept_five({1, 11, 21, 31});
    load(5);
    EXPECT_THAT(judged().lost, IsEmpty());
    EXPECT_THAT(judged().too_old, ElementsAre(saying("round 2", "loaded step 5", "step 10")));
}

TEST_F(SnapshotJudge, OneIntervalMayGoWithANode) {
    saved_ten_kept_five({1, 12, 21, 31});
    load(5);
    const SnapshotHistory history = judged();
    EXPECT_EQ(history.from_other_memory, 1U);
    EXPECT_THAT(history.lost, IsEmpty());
    EXPECT_THAT(history.too_old, IsEmpty());
}

TEST_F(SnapshotJudge, KeptStepIsMissedAfterTheLossOfANode) {
    for (const std::vector<std::int64_t>& next :
         {std::vector<std::int64_t>{1, 12, 21, 31}, {1, 21, 31}, {2, 12, 21, 31}}) {
        records_.clear();
        saved_ten_kept_five(next);
        load(kNoStep);
        EXPECT_THAT(judged().lost,
                    ElementsAre(saying("round 2", "loaded nothing", "step 5", "was kept")));
    }
}

TEST_F(SnapshotJudge, LossOfANodeAndOfItsCopiesExcuses) {
    saved_ten_kept_five({1, 12, 21, 32});
    load(kNoStep);
    save(5);
    tell(0, SnapshotEvent::kept, 5);
    begin(3, {1, 12, 21, 33});
    load(5);
    const SnapshotHistory history = judged();
    EXPECT_EQ(history.excused, 1U);
    EXPECT_EQ(history.bound, 1U);
    EXPECT_THAT(history.lost, IsEmpty());
    EXPECT_THAT(history.too_old, IsEmpty());
}

TEST_F(SnapshotJudge, AgentOfARoundBetweenCounts) {
    saved_ten_kept_five({1, 12, 21, 31});
    load(10);
    begin(3, {1, 13, 21, 32});  // Agent 31 has a copy of the part that 12 had in round 2.
    load(kNoStep);
    EXPECT_EQ(judged().excused, 1U);
    EXPECT_THAT(judged().lost, IsEmpty());
}

TEST_F(SnapshotJudge, LoadedStepIsWhereItWasBefore) {
    saved_ten_kept_five({11, 21, 31});  // 21 has the part of 1, and three ranks load it.
    load(10);
    tell_all(SnapshotEvent::whole, 10);
    begin(3, {11, 22, 31});
    load(kNoStep);
    EXPECT_THAT(judged().too_old, IsEmpty());
    EXPECT_EQ(judged().excused, 1U);
}

TEST_F(SnapshotJudge, RanksMustLoadTheSameAndAllOfIt) {
    saved_ten_kept_five({1, 11, 21, 31});
    load(10);
    records_.back().step = 5;
    EXPECT_THAT(judged().different, ElementsAre(saying("rank 3", "step 5", "step 10")));
    records_.back().step = 10;
    records_.back().is_intact = 0;
    EXPECT_THAT(judged().different, ElementsAre(saying("rank 3", "values of another")));
}

TEST_F(SnapshotJudge, StepOfTheFolderMustBeThere) {
    begin(1, {1, 11, 21, 31}, 20);
    load(15);
    EXPECT_THAT(judged().behind_folder, ElementsAre(saying("loaded step 15", "step 20")));
}

TEST_F(SnapshotJudge, LastStepIsThatOfAllRanks) {
    begin(1, {1, 11});
    save(5);
    tell(0, SnapshotEvent::saved, 10);
    EXPECT_EQ(last_saved_by_all({{"all", records_}}), 5U);
    tell(1, SnapshotEvent::saved, 10);
    EXPECT_EQ(last_saved_by_all({{"all", records_}}), 10U);
}

}  // namespace
}  // namespace regroup::chaos
