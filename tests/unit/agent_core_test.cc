// SPDX-License-Identifier: Apache-2.0
//
// The invariants of agent_core.h: joining, running a round, failures, stopping.
#include "agent_core_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// ---- Joining and heartbeats.

TEST_F(AgentCoreTest, JoinIsTheFirstMessageOnEveryConnection) {
    EXPECT_EQ(one(sent<Join>()).node, "a#1");
    EXPECT_EQ(one(sent<Join>()).report.store_port, kPort);
    in_round(1);
    reconnect();
    EXPECT_EQ(one(sent<Join>()).report.round, RoundId{1});
    EXPECT_EQ(one(sent<Join>()).report.state, NodeState::running);
}

TEST_F(AgentCoreTest, NodeReportsThreeTimesPerHeartbeatTimeout) {
    effects.clear();
    pass_answered(seconds(9));
    EXPECT_EQ(sent<Report>().size(), 9U);
}

TEST_F(AgentCoreTest, NothingIsSentWithoutAConnection) {
    feed(LinkDown{});
    effects.clear();
    pass(seconds(60));
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreTest, SilentDaemonGetsANewConnectionAfterTheTimeout) {
    effects.clear();
    pass(seconds(3) - Duration(1));
    EXPECT_TRUE(all<DropLink>().empty());
    pass(Duration(1));
    EXPECT_EQ(all<DropLink>().size(), 1U);
    pass(seconds(30));
    EXPECT_EQ(all<DropLink>().size(), 1U);
}

TEST_F(AgentCoreTest, WaitingNodeReportsANewStoreSocketAtOnce) {
    effects.clear();
    feed(StoreOffered{4001});
    EXPECT_EQ(one(sent<Report>()).report.store_port, 4001);
    feed(StoreOffered{4001});
    EXPECT_EQ(sent<Report>().size(), 1U);
    in_round(1);
    feed(StoreOffered{4002});  // The end of the workers will be reported early enough.
    EXPECT_TRUE(sent<Report>().empty());
}

// ---- Running a round.

TEST_F(AgentCoreTest, AssignedWorkersAreLaunchedAndReportedFinishedWhenAllSucceed) {
    in_round(1);
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(1, 0);
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(1, 1);
    EXPECT_EQ(one(sent<Report>()).report.state, NodeState::finished);
    EXPECT_FALSE(one(sent<Report>()).report.failure.has_value());
    EXPECT_FALSE(core.has_workers());
}

TEST_F(AgentCoreTest, RepeatedAssignmentLaunchesARoundOnce) {
    in_round(1);
    assign(1);
    assign(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    both_obey(1);
    assign(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

TEST_F(AgentCoreTest, OlderRoundsAreNeverLaunched) {
    in_round(5);
    both_succeed(5);
    assign(4);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

TEST_F(AgentCoreTest, NewerRoundWaitsUntilTheLastWorkerOfTheOlderOneIsGone) {
    in_round(1);
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(one(all<SignalWorkers>()).round, RoundId{1});
    EXPECT_FALSE(one(all<SignalWorkers>()).force());
    exits(1, 0, crash(0, SIGTERM));
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_TRUE(launched(2));
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreTest, NewestOfSeveralAssignmentsIsLaunched) {
    in_round(1);
    assign(3);
    assign(2);
    both_obey(1);
    EXPECT_TRUE(launched(3));
}

TEST_F(AgentCoreTest, GroupRankZeroDoesNotLaunchARoundWhoseStoreIsNotOpen) {
    effects.clear();
    Assignment assignment;
    assignment.round = RoundId{1};
    assignment.group_rank = 0;
    assignment.master_port = kPort + 1;
    hear(Assign{assignment});
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    ASSERT_EQ(sent<Report>().size(), 1U);  // So that the daemon forms another one.
    EXPECT_EQ(sent<Report>()[0].report.round, RoundId{1});
    EXPECT_EQ(sent<Report>()[0].report.state, NodeState::stopped);
    EXPECT_EQ(sent<Report>()[0].report.store_port, kPort);
}

// ---- Failures.

TEST_F(AgentCoreTest, FirstFailureIsReportedAtOnceAndStopsTheOthers) {
    in_round(1);
    exits(1, 1, crash(1));
    EXPECT_EQ(one(sent<Report>()).report.state, NodeState::stopping);
    EXPECT_EQ(one(sent<Report>()).report.failure, crash(1));
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    exits(1, 0, crash(0, SIGTERM));
    ASSERT_EQ(sent<Report>().size(), 2U);
    EXPECT_EQ(sent<Report>()[1].report.state, NodeState::stopped);
    EXPECT_EQ(sent<Report>()[1].report.failure, crash(1));
}

TEST_F(AgentCoreTest, EchoesOfOurOwnStoppingAreNoFailures) {
    in_round(1);
    hear(Stop{RoundId{1}, "node c joined"});
    exits(1, 0, error(0));
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

TEST_F(AgentCoreTest, SigkillIsAnEchoOnlyAfterWeSentIt) {
    in_round(1);
    hear(Stop{RoundId{1}, "rank 3 on b exited with code 1"});
    exits(1, 0, crash(0, SIGKILL));  // This node did not send it: it explains the stop.
    EXPECT_EQ(core.report().failure, crash(0, SIGKILL));
    pass_answered(seconds(11));
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_EQ(core.report().failure, crash(0, SIGKILL));
}

TEST_F(AgentCoreTest, CrashThatIsSeenLaterOutranksTheErrorThatItCaused) {
    in_round(1);
    exits(1, 0, error(0));
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().failure, crash(1));
}

TEST_F(AgentCoreTest, RankThatWaitedInVainOutranksTheOneThatItLeft) {
    in_round(1);
    WorkerFailure left_alone = error(0);
    left_alone.peer_error = rendezvous::PeerError::lost;
    WorkerFailure waited = error(1);
    waited.peer_error = rendezvous::PeerError::awaited;
    exits(1, 0, left_alone);
    exits(1, 1, waited);
    EXPECT_EQ(core.report().failure, waited);
}

TEST_F(AgentCoreTest, WorkerThatFinishesAloneIsReportedSoonUntilTheNextRound) {
    in_round(1);
    const std::uint32_t first = core.assignment().first_rank;
    exits(1, 1);
    EXPECT_TRUE(sent<rendezvous::Report>().empty());  // Usually the others end at once, too.
    pass_answered(seconds(1));
    EXPECT_EQ(last(sent<rendezvous::Report>()).report.finished,
              rendezvous::RankSet(rendezvous::RankSet::Range{first + 1, 1}));
    exits(1, 0, error(0));
    in_round(2);
    EXPECT_TRUE(core.report().finished.empty());
}

TEST_F(AgentCoreTest, OldWorkersNeverFailANewerRound) {
    in_round(1);
    hear(Stop{RoundId{2}, "over before it began"});  // Round 2 was never heard of here.
    EXPECT_EQ(core.report().round, RoundId{2});
    exits(1, 0, crash(0));
    EXPECT_FALSE(core.report().failure.has_value());
    exits(1, 1, crash(1));
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

TEST_F(AgentCoreTest, ExitsOfAnotherRoundAndRepeatedExitsAreIgnored) {
    in_round(2);
    exits(1, 0, crash(0));
    EXPECT_EQ(core.report().state, NodeState::running);
    exits(2, 0);
    exits(2, 0, crash(0));
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_FALSE(core.report().failure.has_value());
}

TEST_F(AgentCoreTest, NewRoundForgetsTheOldFailure) {
    in_round(1);
    exits(1, 0, crash(0));
    exits(1, 1, crash(1, SIGTERM));
    assign(2);
    EXPECT_FALSE(core.report().failure.has_value());
}

// ---- Stopping.

TEST_F(AgentCoreTest, ForceFollowsTheRequestExactlyAfterTheShutdownTimeout) {
    in_round(1);
    hear(Stop{RoundId{1}, "why"});
    effects.clear();
    pass_answered(seconds(10) - milliseconds(1));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(milliseconds(1));
    EXPECT_TRUE(one(all<SignalWorkers>()).force());
}

TEST_F(AgentCoreTest, WorkersThatResistSigkillEndTheAgentWithAnExplanation) {
    in_round(1);
    hear(Stop{RoundId{1}, "why"});
    pass_answered(seconds(10) + seconds(10));
    expect_quit(kExitJobFailed, QuitCause::workers_unkillable);
    EXPECT_EQ(quit()->reason.workers, 2U);
    EXPECT_GE(all<SignalWorkers>().size(), 10U);  // It did not try only once.
    EXPECT_TRUE(core.done());
    EXPECT_EQ(all<SendLeave>().size(), 1U);
}

TEST_F(AgentCoreTest, StopWithoutWorkersIsAnsweredWithTheReport) {
    effects.clear();
    hear(Stop{RoundId{4}, "over before it began"});
    EXPECT_EQ(one(sent<Report>()).report.round, RoundId{4});
    EXPECT_EQ(one(sent<Report>()).report.state, NodeState::stopped);
    assign(4);  // The assignment that the stop had overtaken.
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(5);
    EXPECT_TRUE(launched(5));
}

TEST_F(AgentCoreTest, StopOfAWaitingRoundPreventsIt) {
    in_round(1);
    assign(2);
    hear(Stop{RoundId{2}, "why"});
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(core.report().round, RoundId{2});
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

// As when the daemon gave out two rounds before it could tell of the first.
TEST_F(AgentCoreTest, WaitingRoundIsNotBegunWithASpentStore) {
    in_round(1);
    assign(2, 0);
    feed(StoreOffered{4001});
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(core.report().round, RoundId{2});
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_TRUE(core.report().store_spent);
    assign(3, 0);
    EXPECT_TRUE(launched(3));
    EXPECT_FALSE(core.report().store_spent);
}

TEST_F(AgentCoreTest, AssignmentWithASpentStoreEndsTheRoundBeforeToo) {
    in_round(1);
    Assignment spent;
    spent.round = RoundId{2};
    spent.master_port = 1;
    hear(Assign{spent});
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(one(sent<Report>()).report.round, RoundId{2});
    EXPECT_EQ(one(sent<Report>()).report.state, NodeState::stopping);
    EXPECT_TRUE(one(sent<Report>()).report.store_spent);
    exits(1, 0, error(0));
    exits(1, 1, error(1));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value()) << "it was of round 1";
}

// Its page is gone with it, and no other node may know.
TEST_F(AgentCoreTest, ReportHasTheStepOfAnEndedWorker) {
    in_round(1);
    WorkerExited dead{RoundId{1}, 0, error(0)};
    dead.step = 90;
    feed(dead);
    EXPECT_EQ(core.report().ended_step, 90U);
    EXPECT_EQ(core.report().step, 90U);
    EXPECT_EQ(core.report().held_step, 0U);
    exits(1, 1, error(1));
    assign(2);
    EXPECT_EQ(core.report().ended_step, 0U) << "not in this round";
    EXPECT_EQ(core.report().step, 90U);
}

TEST_F(AgentCoreTest, StopOfAnOlderRoundStopsNothing) {
    in_round(3);
    hear(Stop{RoundId{2}, "why"});
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_TRUE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreTest, FencedNodeEndsItsWorkersAndThenJoinsAgain) {
    in_round(1);
    hear(Fenced{"given up as lost"});
    EXPECT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_TRUE(sent<Join>().empty());
    both_obey(1);
    EXPECT_EQ(one(sent<Join>()).report.state, NodeState::stopped);
}

TEST_F(AgentCoreTest, FencedRoundIsNeverLaunchedAfterwards) {
    in_round(1);
    assign(2);
    hear(Fenced{"given up as lost"});
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(3);
    EXPECT_TRUE(launched(3));
}

TEST_F(AgentCoreTest, RoundAssignedAfterAFenceAndAfterTheJoinRunsOnce) {
    in_round(1);
    hear(Fenced{"given up as lost"});
    assign(2);
    both_obey(1);
    EXPECT_EQ(sent<Join>().size(), 1U);
    assign(2);
    EXPECT_TRUE(launched(2));
    effects.clear();
    both_succeed(2);
    EXPECT_EQ(core.report().state, NodeState::finished);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

TEST_F(AgentCoreTest, RoundAssignedOverAnOldConnectionMustBeAssignedAgain) {
    in_round(1);
    assign(2);
    reconnect();  // Perhaps a new daemon, which does not know round 2.
    both_obey(1);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    assign(102);
    EXPECT_TRUE(launched(102));
}

TEST_F(AgentCoreTest, WorkersGoOnWithoutTheDaemonWhichLearnsOfTheirEndLater) {
    in_round(1);
    feed(LinkDown{});
    pass(minutes(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    both_succeed(1);
    EXPECT_TRUE(effects.empty());
    feed(LinkUp{});
    EXPECT_EQ(one(sent<Join>()).report.state, NodeState::finished);
}

}  // namespace
}  // namespace regroup::agent
