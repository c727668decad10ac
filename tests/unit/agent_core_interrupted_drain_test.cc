// SPDX-License-Identifier: Apache-2.0
//
// Resident workers of a node that is to leave, whose round breaks before the boundary; and who of
// them has saved its state.
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_resident_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;
using Ranks = std::vector<std::uint32_t>;

TEST_F(AgentCoreResidentTest, WhoWasInterruptedOnTheWayToTheBoundaryLeavesTheDecisionToTheDaemon) {
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_FALSE(all<PauseWorkers>()[0].at_once);
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(8, 1);
    ASSERT_TRUE(reported(NodeState::stopped));
    EXPECT_TRUE(core.report().uneven);
    EXPECT_EQ(all<PauseWorkers>().size(), 1U) << "nobody is to save anything yet";
    assign(2);
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    feed(StepsCommitted{10});
    hear(Prepare{RoundId{2}, true, "all leave"});
    EXPECT_FALSE(core.report().uneven);
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_EQ(all<PauseWorkers>()[1].round, RoundId{2});
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoWasInterruptedSavesWhatThereIsThoughTheJobFailsMeanwhile) {
    prepare(true);
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(8, 1);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    Verdict verdict;
    verdict.exit_code = 1;
    hear(Closed{verdict});
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_TRUE(all<PauseWorkers>()[1].at_once);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    expect_exit_when_both_have_left(1);
}

TEST_F(AgentCoreResidentTest, ARoundThatDoesNotTrainInHalfTheTimeIsGivenUpAndItsStateSaved) {
    feed(QuitRequested{SIGTERM});
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(8, 1);
    pass_answered(seconds(2));
    assign(2);
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    pass_answered(seconds(2));
    EXPECT_TRUE(all<EndRound>().size() == 1U && all<PauseWorkers>().empty());
    pass_answered(seconds(2));
    ASSERT_FALSE(all<PauseWorkers>().empty());
    EXPECT_TRUE(all<PauseWorkers>().back().at_once);
    ASSERT_EQ(all<EndRound>().size(), 2U);
    EXPECT_EQ(all<EndRound>().back().round, RoundId{2});
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoWasInterruptedSavesWhatThereIsIfTheDaemonSaysSo) {
    prepare(true);
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(9, 1);
    EXPECT_FALSE(core.report().uneven);
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_TRUE(all<PauseWorkers>()[1].at_once);
}

TEST_F(AgentCoreResidentTest, WithoutADaemonWhoWasInterruptedSavesWhatThereIs) {
    prepare(true);
    feed(LinkDown{});
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(8, 1);
    pass(seconds(9));
    EXPECT_EQ(all<PauseWorkers>().size(), 1U) << "it may be back, and know of a later state";
    pass(seconds(1));
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_TRUE(all<PauseWorkers>()[1].at_once);
}

TEST_F(AgentCoreResidentTest, AWordToLeaveAtTheBoundaryThatComesTooLateIsAnsweredWithTheReport) {
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(StepsCommitted{9});
    parks_at(8, 0);
    parks_at(9, 1);
    effects.clear();
    hear(Prepare{RoundId{1}, true, "all leave", true});
    EXPECT_TRUE(all<PauseWorkers>().empty());
    ASSERT_TRUE(reported(NodeState::stopped));
    EXPECT_TRUE(sent<Report>().back().report.uneven);
}

TEST_F(AgentCoreResidentTest, WhoWasLeftBehindByALaterRoundEndsAndSavesNothing) {
    hear(Stop{RoundId{1}, "this node is lost"});
    parks_at(9, 0);
    parks_at(9, 1);
    hear(Prepare{RoundId{1}, true, "node a is drained", false, true});
    EXPECT_TRUE(all<PauseWorkers>().empty());
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGKILL);
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
    EXPECT_EQ(quit()->reason, "drained: node a is drained");
}

TEST_F(AgentCoreResidentTest, OneThatHasLeftAtTheBoundaryIsFollowedByThoseWhoParked) {
    prepare(true);
    exits(1, 0);
    parks_at(9, 1);
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_TRUE(all<PauseWorkers>()[1].at_once);
}

TEST_F(AgentCoreResidentTest, ANodeThatIsToGoSavesWhatThereIsIfNoRoundComesInHalfTheTime) {
    feed(QuitRequested{SIGTERM});
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(StepsCommitted{9});
    parks_at(9, 0);
    parks_at(8, 1);
    EXPECT_TRUE(core.report().uneven);
    pass_answered(seconds(4));
    EXPECT_TRUE(all<PauseWorkers>().empty());
    pass_answered(seconds(2));
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].at_once);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ADeathBeforeTheBoundaryLeavesTheSurvivorsTimeToSave) {
    prepare(true);
    exits(1, 0, crash(0, SIGKILL));
    parks(1, 1);
    ASSERT_TRUE(core.report().failure.has_value());
    Verdict verdict;
    verdict.exit_code = kExitRequeue;
    hear(Closed{verdict});
    pass(seconds(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, TheEndOfAJobThatIsDrainedIsEnoughToSave) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    Verdict verdict;
    verdict.exit_code = kExitRequeue;
    hear(Closed{verdict});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass(config_of_two_workers().policy.prepare_timeout + seconds(1));
    ASSERT_FALSE(all<SignalWorkers>().empty());  // Not for ever.
}

TEST_F(AgentCoreResidentTest, WhoFailsToSaveIsNotTakenForSaved) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    hear(Prepare{RoundId{1}, true, "all leave"});
    exits(1, 0);
    exits(1, 1, error(1));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
}

TEST_F(AgentCoreResidentTest, WhoHasSavedAtTheBoundaryHasSavedThoughTheRoundIsStoppedForOthers) {
    prepare(true);
    exits(1, 0);
    hear(Stop{RoundId{1}, "not all workers reached a step boundary in time"});
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoEndsByForceInsteadHasNotSaved) {
    prepare(true);
    hear(Stop{RoundId{1}, "not all workers reached a step boundary in time"});
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
}

TEST_F(AgentCoreResidentTest, WhoFailsToSaveAtTheBoundaryIsNotTakenForSaved) {
    prepare(true);
    exits(1, 0);
    exits(1, 1, error(1));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
    EXPECT_EQ(quit()->reason, "a node joins; a worker failed as it saved its state");
}

TEST_F(AgentCoreResidentTest, WhoFailsToSaveIsNotMadeGoodByWhoSavesAtTheSameBoundaryLater) {
    prepare(true);
    exits(1, 0, error(0));
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_TRUE(sent<Report>()[0].report.failure.has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitJobFailed);
}

TEST_F(AgentCoreResidentTest, WhoIsKilledAtTheLimitAfterAnotherHasSavedHasNot) {
    feed(QuitRequested{SIGTERM});
    prepare(true);
    exits(1, 0);
    hear(Stop{RoundId{1}, "not all workers reached a step boundary in time"});
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 128 + SIGTERM);
}

TEST_F(AgentCoreResidentTest, WhoDiesInItsRoundTakesNothingFromWhatTheParkedOnesHaveSaved) {
    prepare(true);
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 1);
    exits(1, 1);
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ADrainOnTheLastStepFindsTheTrainingFinished) {
    feed(QuitRequested{SIGTERM});
    prepare(true);
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    feed(WorkerExited{RoundId{1}, 1, std::nullopt, true});
    EXPECT_TRUE(reported(NodeState::finished));
    EXPECT_FALSE(quit().has_value());
    pass_answered(seconds(11));  // It does not wait for the others for ever.
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 0);
    EXPECT_EQ(quit()->signal, 0);
}

// A loss in the middle of the last commit: one had the word that all were there, another had not.
TEST_F(AgentCoreResidentTest, WhoHasFinishedAtTheBoundaryHasNotSavedForTheOthers) {
    prepare(true);
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    for (const PauseWorkers& pause : all<PauseWorkers>()) {
        EXPECT_FALSE(pause.at_once) << "the daemon knows whether there will be another round";
    }
}

TEST_F(AgentCoreResidentTest, WhereAllHaveFinishedNothingWasLeftToSave) {
    prepare(true);
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(WorkerExited{RoundId{1}, 1, std::nullopt, true});
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoHasFinishedTrainingIsAsAnyProgram) {
    feed(WorkerAttached{0, false});
    EXPECT_FALSE(core.report().resident);
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_FALSE(core.would_drain());
    hear(Stop{RoundId{1}, "another node is lost"});
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{0}));
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (Ranks{1}));
}

}  // namespace
}  // namespace regroup::agent
