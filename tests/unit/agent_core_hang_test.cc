// SPDX-License-Identifier: Apache-2.0
#include "agent/core/agent_core.h"
#include "tests/unit/agent_core_fixture.h"

namespace regroup::agent {
namespace {

using rendezvous::EndWorker;
using rendezvous::FailureKind;
using rendezvous::Hang;
using rendezvous::NodeState;
using rendezvous::RankPosition;

class AgentCoreHangTest : public AgentCoreTest {
   protected:
    const Hang hang{1, "rank 1 has been in step 41 for 12 s (limit 10 s)", false};
};

TEST_F(AgentCoreHangTest, HangIsReportedAtOnceAndWithdrawnWhenWorkersMove) {
    in_round(1);
    feed(HangSuspected{RoundId{1}, hang});
    EXPECT_EQ(core.report().hang, hang);
    EXPECT_EQ(all<SendToDaemon>().size(), 1U);
    feed(HangSuspected{RoundId{1}, hang});
    EXPECT_EQ(all<SendToDaemon>().size(), 1U) << "it is no news twice";
    feed(HangSuspected{RoundId{1}, std::nullopt});
    EXPECT_FALSE(core.report().hang);
    EXPECT_EQ(all<SendToDaemon>().size(), 2U);
}

TEST_F(AgentCoreHangTest, HangOfAnotherOrAStoppingRoundIsIgnored) {
    in_round(2);
    feed(HangSuspected{RoundId{1}, hang});
    EXPECT_FALSE(core.report().hang);
    hear(rendezvous::Stop{RoundId{2}, "a node joined"});
    feed(HangSuspected{RoundId{2}, hang});
    EXPECT_FALSE(core.report().hang);
}

TEST_F(AgentCoreHangTest, StacksAreSavedOnceForEachAlarmHoweverOftenTheyAreAskedFor) {
    in_round(1);
    const rendezvous::SaveStacks first{RoundId{1}, 1, "rank 1 hangs"};
    hear(first);
    hear(first);
    EXPECT_EQ(all<SaveStacks>().size(), 1U);
    const std::vector<RankPosition> positions = {{0, 41, 7, true, "all_reduce"},
                                                 {1, 41, 6, false, "section 'load'"}};
    feed(StacksSaved{RoundId{1}, positions});
    EXPECT_EQ(core.report().positions, positions);
    EXPECT_EQ(core.report().alarm, 1U);
    const std::size_t reports = all<SendToDaemon>().size();
    hear(first);
    EXPECT_EQ(all<SaveStacks>().size(), 1U);
    EXPECT_EQ(all<SendToDaemon>().size(), reports + 1) << "the answer may have been lost";
    hear(rendezvous::SaveStacks{RoundId{1}, 2, "rank 0 hangs"});
    EXPECT_EQ(all<SaveStacks>().size(), 2U);
    EXPECT_EQ(core.report().alarm, 1U) << "not answered yet";
}

TEST_F(AgentCoreHangTest, PositionsAreLeftOutOnceTheDaemonHasThem) {
    in_round(1);
    rendezvous::SaveStacks alarm{RoundId{1}, 1, "rank 1 is in all_reduce"};
    alarm.positions_only = true;
    hear(alarm);
    EXPECT_TRUE(one(all<SaveStacks>()).positions_only);
    feed(StacksSaved{RoundId{1}, {{1, 41, 6, false, ""}}});
    ASSERT_EQ(core.report().alarm, 1U);
    hear(rendezvous::Alive{RoundId{1}});
    EXPECT_TRUE(core.report().positions.empty());
    EXPECT_EQ(core.report().alarm, 0U);
}

TEST_F(AgentCoreHangTest, AlarmRaisedWhileStacksAreSavedForAnotherGetsItsOwnAnswer) {
    in_round(1);
    hear(rendezvous::SaveStacks{RoundId{1}, 1, "rank 1 hangs"});
    hear(rendezvous::SaveStacks{RoundId{1}, 2, "rank 0 hangs"});
    EXPECT_EQ(all<SaveStacks>().size(), 1U);
    feed(StacksSaved{RoundId{1}, {{1, 41, 6, false, ""}}});
    EXPECT_EQ(core.report().alarm, 0U) << "it moved again after that";
    ASSERT_EQ(all<SaveStacks>().size(), 2U);
    EXPECT_EQ(all<SaveStacks>()[1].reason, "rank 0 hangs");
    const std::vector<RankPosition> positions = {{0, 42, 7, false, ""}};
    feed(StacksSaved{RoundId{1}, positions});
    EXPECT_EQ(core.report().alarm, 2U);
    EXPECT_EQ(core.report().positions, positions);
}

TEST_F(AgentCoreHangTest, RequestForStacksOfAnotherRoundIsAnsweredWithTheReport) {
    in_round(2);
    hear(rendezvous::SaveStacks{RoundId{1}, 1, "rank 1 hangs"});
    EXPECT_EQ(all<SaveStacks>().size(), 0U);
    EXPECT_EQ(all<SendToDaemon>().size(), 1U);
}

TEST_F(AgentCoreHangTest, WorkerKilledForAHangOrItsSilenceFailsByThat) {
    for (const bool by_silence : {false, true}) {
        restart();
        in_round(1);
        hear(EndWorker{RoundId{1}, 1, hang.text, by_silence});
        EXPECT_EQ(one(all<KillWorker>()).local_rank, 1U);
        EXPECT_EQ(one(all<KillWorker>()).by_silence, by_silence);
        exits(1, 1, crash(1, SIGKILL));
        ASSERT_TRUE(core.report().failure);
        EXPECT_EQ(core.report().failure->kind, FailureKind::hang);
        EXPECT_EQ(core.report().failure->evidence, hang.text);
        EXPECT_EQ(core.report().failure->by_silence, by_silence);
        EXPECT_EQ(core.report().state, NodeState::stopping);
    }
}

TEST_F(AgentCoreHangTest, NextRoundBeginsWithoutOldAlarms) {
    in_round(1);
    feed(HangSuspected{RoundId{1}, hang});
    hear(rendezvous::SaveStacks{RoundId{1}, 1, hang.text});
    feed(StacksSaved{RoundId{1}, {{0, 41, 7, true, ""}}});
    ASSERT_FALSE(core.report().positions.empty());
    hear(EndWorker{RoundId{1}, 1, hang.text});
    exits(1, 1, crash(1, SIGKILL));
    exits(1, 0, crash(0, SIGTERM));
    in_round(2);
    EXPECT_FALSE(core.report().hang);
    EXPECT_TRUE(core.report().positions.empty());
    EXPECT_EQ(core.report().alarm, 0U);
    exits(2, 1, crash(1, SIGKILL));
    ASSERT_TRUE(core.report().failure);
    EXPECT_EQ(core.report().failure->kind, FailureKind::failure);
}

TEST_F(AgentCoreHangTest, RankOfAnotherNodeIsNotEnded) {
    in_round(1);
    hear(EndWorker{RoundId{1}, 9, hang.text});
    EXPECT_EQ(all<KillWorker>().size(), 0U);
}

}  // namespace
}  // namespace regroup::agent
