// SPDX-License-Identifier: Apache-2.0
//
// Checks that judge() detects errors: each history here has one.
#include "tests/chaos/history.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/chaos/model.h"
#include "tests/chaos/records.h"
#include "tests/support/matchers.h"

namespace regroup::chaos {
namespace {

constexpr std::size_t kWeights = 8;

/// Two workers, a and b. Round 1 does steps 0 to 2; only a, which is lost, has applied the last
/// one. In round 2 the new worker c replaces a. Training ends after step 4.
class HistoryTest : public ::testing::Test {
   protected:
    HistoryTest() : digests_(undisturbed(5, kWeights)) {
        logs_ = {{"a", {}}, {"b", {}}, {"c", {}}};
        for (std::uint64_t step = 0; step < 3; ++step) {
            add(0, 1, 0, step);
        }
        for (std::uint64_t step = 0; step < 2; ++step) {
            add(1, 1, 1, step);
        }
        for (std::uint64_t step = 2; step < 5; ++step) {
            add(1, 2, 1, step);
            add(2, 2, 0, step);
        }
        end(1, 1);
        end(2, 0);
    }

    void add(std::size_t process, std::uint64_t round, std::uint32_t rank, std::uint64_t step) {
        logs_[process].records.push_back({.kind = RecordKind::step,
                                          .rank = rank,
                                          .world_size = 2,
                                          .round = round,
                                          .step = step,
                                          .samples_begin = step * kBatch,
                                          .samples_end = (step + 1) * kBatch,
                                          .digest = digests_.at(step)});
    }
    void end(std::size_t process, std::uint32_t rank) {
        logs_[process].records.push_back({.kind = RecordKind::finished,
                                          .rank = rank,
                                          .world_size = 2,
                                          .round = 2,
                                          .step = 5,
                                          .digest = digests_.back()});
    }
    /// The record of process b in round 2 for `step`.
    Record& of_b(std::uint64_t step) { return logs_[1].records.at(step); }
    [[nodiscard]] std::vector<std::string> wrongs() const { return judge(logs_, digests_).wrongs; }

    std::vector<std::uint64_t> digests_;
    std::vector<ProcessLog> logs_;
};

TEST_F(HistoryTest, RepeatedLastStepOfALostLeaderIsAccepted) {
    const History history = judge(logs_, digests_);
    EXPECT_THAT(history.wrongs, IsEmpty());
    EXPECT_EQ(history.steps, 5U);
    EXPECT_EQ(history.digest, digests_.back());
    ASSERT_THAT(history.rounds, SizeIs(2));
    EXPECT_EQ(history.rounds.at(2).first_step, 2U);
}

TEST_F(HistoryTest, DifferentParametersAreDetected) {
    of_b(3).digest ^= 1;
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("step 3 by rank 1 in round 2")));
}

TEST_F(HistoryTest, DifferentSamplesAreDetected) {
    of_b(3).samples_begin += 1;
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("samples 73 to 96")));
}

TEST_F(HistoryTest, StepRepeatedByOneProcessIsDetected) {
    logs_[1].records.insert(logs_[1].records.begin() + 3, of_b(2));
    EXPECT_THAT(wrongs(), Contains(HasSubstr("its process had applied step 2")));
}

TEST_F(HistoryTest, StepOfSomeRanksOnlyIsDetected) {
    logs_[1].records.erase(logs_[1].records.begin() + 3);
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("step 3 in round 2 was applied by 1 of 2 ranks")));
}

TEST_F(HistoryTest, RoundThatStartsBehindItsWorkersIsDetected) {
    // If b applied step 2 in round 1 as well, round 2 must begin with step 3.
    Record forgotten = of_b(2);
    forgotten.round = 1;
    logs_[1].records.insert(logs_[1].records.begin() + 2, forgotten);
    EXPECT_THAT(wrongs(), Contains(HasSubstr("round 2 began with step 2, though its rank 1")));
}

TEST_F(HistoryTest, LostStepsAreDetected) {
    // Round 3 begins where round 2 did.
    logs_.push_back({"d", {}});
    for (std::uint64_t step = 2; step < 5; ++step) {
        add(3, 3, 0, step);
    }
    EXPECT_THAT(wrongs(), Contains(HasSubstr("round 3 began with step 2, after step 4")));
}

/// Lets b and c end round 2 at once, after `steps`.
void end_at_once(std::vector<ProcessLog>& logs, std::uint64_t steps, std::uint64_t digest) {
    for (const std::size_t process : {1U, 2U}) {
        std::vector<Record>& records = logs[process].records;
        records.back().step = steps;
        records.back().digest = digest;
        records.erase(std::find_if(records.begin(), records.end(),
                                   [](const Record& record) { return record.round == 2; }),
                      std::prev(records.end()));
    }
}

TEST_F(HistoryTest, LastStepOfALostRankMayBeMissingIfTheJobEndsBeforeIt) {
    end_at_once(logs_, 2, digests_.at(1));
    const History history = judge(logs_, digests_);
    EXPECT_THAT(history.wrongs, IsEmpty());
    EXPECT_EQ(history.digest, digests_.at(1));
}

TEST_F(HistoryTest, EndBeforeTheLastStepOfThePreviousRoundIsDetected) {
    end_at_once(logs_, 1, digests_.at(0));
    EXPECT_THAT(wrongs(), Contains(HasSubstr("rank 1 finished after 1 steps of 3")));
}

TEST_F(HistoryTest, EndBehindTheStepsOfItsWorkersIsDetected) {
    Record forgotten = of_b(2);
    forgotten.round = 1;
    end_at_once(logs_, 2, digests_.at(1));
    logs_[1].records.insert(std::prev(logs_[1].records.end()), forgotten);
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("rank 1 finished after 2 steps of 3")));
}

TEST_F(HistoryTest, RanksThatEndAfterDifferentStepsAreDetected) {
    logs_[2].records.back().step = 4;
    logs_[2].records.back().digest = digests_.at(3);
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("rank 0 finished after 4 steps of 5"),
                                      HasSubstr("ranks finished after 4 steps and after 5")));
}

TEST_F(HistoryTest, LastStepKnownToSomeRanksOnlyIsDetected) {
    Record known = of_b(2);
    known.round = 1;
    end_at_once(logs_, 2, digests_.at(1));
    logs_[1].records.insert(std::prev(logs_[1].records.end()), known);
    logs_[1].records.back().step = 3;
    logs_[1].records.back().digest = digests_.at(2);
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("ranks finished after 2 steps and after 3")));
}

TEST_F(HistoryTest, RankThatDoesNotFinishIsDetected) {
    logs_[2].records.pop_back();
    EXPECT_THAT(wrongs(), ElementsAre(HasSubstr("1 of 2 ranks said that training is over")));
}

TEST_F(HistoryTest, RoundMissingFromTheLedgerIsDetected) {
    const History history = judge(logs_, digests_);
    EXPECT_THAT(check_ledger(history, {}), ElementsAre(HasSubstr("round 2")));
    EXPECT_THAT(check_ledger(history, {{.round = 1, .next_round = 2, .cause = "rank 0 is lost"}}),
                IsEmpty());
}

TEST(Ledger, OnlyTheLastRoundOfADaemonKilledWithoutAJournalMayBeMissing) {
    History history;
    for (const std::uint64_t round : {1U, 2U, 3U, 105U}) {
        history.rounds[round] = {.first_at = static_cast<std::int64_t>(round) * 100};
    }
    const std::vector<LedgerEntry> told = {
        {.round = 1, .next_round = 2, .cause = "rank 0 is lost"}};
    EXPECT_THAT(check_ledger(history, told), ElementsAre(HasSubstr("round 3")));
    EXPECT_THAT(check_ledger(history, told, {}, {{250, 350}}), IsEmpty());
    EXPECT_THAT(check_ledger(history, {}, {}, {{150, 350}}), ElementsAre(HasSubstr("round 2")));
}

TEST(Undisturbed, EveryStepDependsOnAllBefore) {
    const auto digests = undisturbed(4, kWeights);
    EXPECT_EQ(undisturbed(2, kWeights).back(), digests.at(1));
    Model once(kWeights);
    Model twice(kWeights);
    const std::vector<std::int64_t> gradient(kWeights, 7);
    once.apply(gradient);
    twice.apply(gradient);
    twice.apply(gradient);
    EXPECT_NE(once.digest(), twice.digest());
}

}  // namespace
}  // namespace regroup::chaos
