// SPDX-License-Identifier: Apache-2.0
//
// The invariants of agent_core.h for elastic workers: suspending, and assignment to the next round.
// Drains are in agent_core_leaving_test.cc, waiting workers in agent_core_waiting_test.cc.
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_elastic_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;
using Ranks = std::vector<std::uint32_t>;

TEST_F(AgentCoreElasticTest, WorkersThatSuspendAtABoundaryBeforePrepareArrivesHaveNotFailed) {
    feed(WorkerSuspended{0, RoundId{1}, true});
    EXPECT_TRUE(all<EndRound>().empty());
    EXPECT_EQ(core.report().state, NodeState::running);
    feed(WorkerSuspended{1, RoundId{1}, true});
    EXPECT_TRUE(reported(NodeState::stopped));
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
}

// ---- Losses.

TEST_F(AgentCoreElasticTest, NodeReportsElasticOnceAllWorkersAre) {
    restart();
    in_round(1);
    attach(0);
    EXPECT_TRUE(sent<Report>().empty());
    feed(WorkerAttached{1, false});
    EXPECT_FALSE(core.report().elastic);
    attach(1);
    EXPECT_TRUE(one(sent<Report>()).report.elastic);
}

TEST_F(AgentCoreElasticTest, StopSuspendsWorkersAndTheNextRoundAssignsThemAgain) {
    hear(Stop{RoundId{1}, "another node is lost"});
    EXPECT_EQ(one(all<EndRound>()).local_ranks, (Ranks{0, 1}));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    suspends(1, 0);
    EXPECT_FALSE(reported(NodeState::stopped));
    suspends(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(one(all<AssignWorkers>()).local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(core.report().state, NodeState::running);
}

TEST_F(AgentCoreElasticTest, OnlyTheLostWorkerIsLaunchedAgain) {
    exits(1, 0, crash(0, SIGKILL));
    EXPECT_EQ(one(all<EndRound>()).local_ranks, (Ranks{1}));
    EXPECT_TRUE(reported(NodeState::stopping));  // At once, so that the other nodes hear of it.
    suspends(1, 1);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->signal, SIGKILL);
    assign(2);
    EXPECT_EQ(one(all<AssignWorkers>()).local_ranks, (Ranks{1}));
    EXPECT_EQ(one(all<LaunchWorkers>()).local_ranks, (Ranks{0}));
    EXPECT_TRUE(core.report().elastic);  // Until the new worker shows otherwise.
    exits(2, 0, error(0));
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->exit_code, 1);
}

TEST_F(AgentCoreElasticTest, UnattachedWorkerEndsWithTheRound) {
    exits(1, 0, crash(0, SIGKILL));
    suspends(1, 1);
    assign(2);
    effects.clear();
    hear(Stop{RoundId{2}, "another node is lost"});
    EXPECT_EQ(one(all<SignalWorkers>()).local_ranks, (Ranks{0}));
    EXPECT_EQ(one(all<EndRound>()).local_ranks, (Ranks{1}));
}

TEST_F(AgentCoreElasticTest, OnlyTheWorkerThatDoesNotSuspendInTimeIsKilled) {
    hear(Stop{RoundId{1}, "another node is lost"});
    suspends(1, 0);
    pass_answered(seconds(11));
    ASSERT_FALSE(all<SignalWorkers>().empty());
    EXPECT_TRUE(all<SignalWorkers>()[0].force());
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{1}));
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());  // The agent killed it.
}

TEST_F(AgentCoreElasticTest, AnnouncedFailureCountsHoweverLongTheWorkerTakesToEnd) {
    suspends(1, 0);  // Its peer on this node fails and has not ended yet.
    ASSERT_EQ(core.report().state, NodeState::stopping);
    WorkerFailure announced = error(1);
    announced.announced = true;
    exits(1, 1, announced);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_TRUE(core.report().failure->announced);
}

TEST_F(AgentCoreElasticTest, WorkerThatSuspendsUnaskedHasLostItsPeers) {
    suspends(1, 0);
    EXPECT_EQ(one(all<EndRound>()).local_ranks, (Ranks{1}));
    EXPECT_TRUE(reported(NodeState::stopping));
    suspends(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreElasticTest, BrokenConnectionIsReportedAtOnceAndEndsNoWorker) {
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    const std::uint32_t rank = core.assignment().first_rank + 1;
    const std::vector<BrokenLink> links = {{rank, 2, "closed the connection"}};
    EXPECT_EQ(one(sent<Report>()).report.broken_links, links);
    EXPECT_TRUE(reported(NodeState::running));
    EXPECT_TRUE(all<EndRound>().empty());
    // Consequences, and events of earlier rounds, are not reported.
    feed(WorkerLostPeer{1, RoundId{1}, 3, "closed the connection"});
    feed(WorkerLostPeer{0, RoundId{0}, 3, "closed the connection"});
    EXPECT_EQ(core.report().broken_links, links);
    hear(Stop{RoundId{1}, "it broke"});
    both_suspend();
    assign(2);
    EXPECT_TRUE(core.report().broken_links.empty());
}

TEST_F(AgentCoreElasticTest, BrokenConnectionOfARoundThatNeverBeganIsIgnored) {
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    hear(Stop{RoundId{1}, "it broke"});
    both_suspend();
    ASSERT_FALSE(core.report().broken_links.empty());
    hear(Stop{RoundId{2}, "over before it began"});
    EXPECT_EQ(core.report().round, RoundId{2});
    EXPECT_TRUE(core.report().broken_links.empty());
}

TEST_F(AgentCoreElasticTest, FinishedWorkerReportsNoBrokenConnection) {
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    feed(WorkerAttached{1, false});
    EXPECT_TRUE(core.report().broken_links.empty());
    EXPECT_TRUE(last(sent<Report>()).report.broken_links.empty());
    // Also not later: its peers end at different times.
    effects.clear();
    feed(WorkerLostPeer{1, RoundId{1}, 2, "closed the connection"});
    EXPECT_TRUE(core.report().broken_links.empty());
    EXPECT_TRUE(sent<Report>().empty());
}

TEST_F(AgentCoreElasticTest, LateMessageOfAnOlderRoundSuspendsNoWorker) {
    hear(Stop{RoundId{1}, "another node is lost"});
    both_suspend();
    assign(2);
    effects.clear();
    suspends(1, 0);
    EXPECT_FALSE(core.is_suspended(0));
    EXPECT_TRUE(all<EndRound>().empty());
}

TEST_F(AgentCoreElasticTest, EndOfARoundWithoutADaemonIsReportedWithItsAge) {
    feed(LinkDown{});
    pass(std::chrono::seconds(1));
    exits(1, 0, crash(0, SIGSEGV));
    pass(std::chrono::milliseconds(10));
    suspends(1, 1);
    pass(std::chrono::seconds(2));
    feed(LinkUp{});
    EXPECT_EQ(one(sent<rendezvous::Join>()).report.ended_ago, std::chrono::milliseconds(2010));
    pass(std::chrono::seconds(1));
    EXPECT_EQ(last(sent<rendezvous::Report>()).report.ended_ago, Duration::zero());
    assign(2);
    reconnect();
    EXPECT_EQ(sent<rendezvous::Join>().back().report.ended_ago, Duration::zero());
}

TEST_F(AgentCoreElasticTest, FencedWorkersSuspendAndTheNodeJoinsAgain) {
    hear(Fenced{"silent for 3 s"});
    EXPECT_EQ(all<EndRound>().size(), 1U);
    suspends(1, 0);
    EXPECT_TRUE(sent<Join>().empty());
    suspends(1, 1);
    EXPECT_EQ(one(sent<Join>()).report.state, NodeState::stopped);
    EXPECT_TRUE(core.has_workers());
}

TEST_F(AgentCoreElasticTest, ClosedEndsSuspendedWorkers) {
    hear(Stop{RoundId{1}, "another node is lost"});
    suspends(1, 0);
    effects.clear();
    hear(Closed{Verdict{}});
    // A suspended worker may handle SIGTERM; the agent does not wait for that.
    ASSERT_EQ(all<SignalWorkers>().size(), 2U);
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, (Ranks{1}));
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGTERM);
    EXPECT_EQ(all<SignalWorkers>()[1].local_ranks, (Ranks{0}));
    EXPECT_TRUE(all<SignalWorkers>()[1].force());
    exits(1, 0, crash(0, SIGKILL));
    EXPECT_FALSE(quit().has_value());
    exits(1, 1, crash(1, SIGTERM));
    EXPECT_TRUE(quit().has_value());
}

// ---- User code, in which workers do not hear that the round is over.

TEST_F(AgentCoreElasticTest, WorkersInUserCodeAreNotEndedBeforeTheirHangLimit) {
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    EXPECT_EQ(last(sent<Report>()).report.at_work, seconds(200));
    pass_answered(seconds(10));
    EXPECT_EQ(one(all<TellAtWork>()).left, seconds(190));
    EXPECT_EQ(sent<Report>().back().report.at_work, seconds(190));
    pass_answered(seconds(189));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(seconds(1));
    EXPECT_TRUE(one(all<SignalWorkers>()).force());
}

TEST_F(AgentCoreElasticTest, UserCodeThatEndsInTimeGivesNoMessage) {
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    feed(WorkersAtWork{RoundId{1}, seconds(3)});  // A later report does not shorten the time.
    both_suspend();
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_EQ(sent<Report>().back().report.at_work, Duration::zero());
    pass_answered(seconds(300));
    EXPECT_TRUE(all<TellAtWork>().empty());
    EXPECT_TRUE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreElasticTest, LeavingNodeGetsNoExtraTimeForUserCode) {
    gets_signal(SIGTERM);
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    EXPECT_EQ(core.report().at_work, Duration::zero());
    pass_answered(seconds(10));
    EXPECT_FALSE(all<SignalWorkers>().empty());
}

TEST_F(AgentCoreElasticTest, UserCodeInARunningRoundChangesNothing) {
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    hear(Stop{RoundId{1}, "another node is lost"});
    feed(WorkersAtWork{RoundId{2}, seconds(200)});
    EXPECT_EQ(core.report().at_work, Duration::zero());
}

// ---- Forwarded messages.

TEST_F(AgentCoreElasticTest, NodeWithRankZeroReportsTheFirstStepOfARound) {
    feed(WorkerResumed{1, Resumed{RoundId{1}, 5, {}, {}, {}}});
    EXPECT_TRUE(sent<Resumed>().empty());
    feed(WorkerResumed{0, Resumed{RoundId{1}, 5, {}, {}, {}}});
    EXPECT_EQ(one(sent<Resumed>()).step, 5U);
    feed(StepsCommitted{9});
    EXPECT_EQ(core.report().step, 9U);
    EXPECT_EQ(core.report().held_step, 9U);
    feed(StepsCommitted{8});
    EXPECT_EQ(core.report().step, 9U);
    EXPECT_EQ(core.report().held_step, 8U);
}

TEST_F(AgentCoreElasticTest, FirstStepIsReportedAgainUntilTheDaemonAnswers) {
    feed(LinkDown{});
    feed(WorkerResumed{0, Resumed{RoundId{1}, 5, {}, {}, {}}});
    EXPECT_TRUE(sent<Resumed>().empty());
    feed(LinkUp{});
    ASSERT_EQ(sent<Resumed>().size(), 1U);
    // The daemon may have died before it heard of it.
    reconnect();
    ASSERT_EQ(sent<Resumed>().size(), 2U);
    EXPECT_EQ(sent<Resumed>()[1].step, 5U);
    now += std::chrono::seconds(7);
    reconnect();
    ASSERT_EQ(sent<Resumed>().size(), 3U);
    EXPECT_EQ(sent<Resumed>()[2].ago, std::chrono::seconds(7));
    rendezvous::Incident incident;
    incident.next_round = RoundId{1};
    hear(rendezvous::Recovered{incident});
    reconnect();
    EXPECT_EQ(sent<Resumed>().size(), 3U);
}

}  // namespace
}  // namespace regroup::agent
