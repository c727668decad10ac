// SPDX-License-Identifier: Apache-2.0
//
// A node of elastic workers gets a signal. It has 10 s to leave.
#include "agent/text/cause_text.h"
#include "tests/unit/agent_core_leaving_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

using AgentCoreSignalTest = AgentCoreLeavingTest;

TEST_F(AgentCoreSignalTest, NodeWithoutADaemonGoesToABoundaryAndThenSaves) {
    gets_signal(SIGTERM);
    pass_answered(milliseconds(4999));
    EXPECT_TRUE(all<PauseWorkers>().empty());
    pass_answered(milliseconds(1));
    EXPECT_FALSE(one(all<PauseWorkers>()).at_once);
    pass_answered(milliseconds(2500));
    EXPECT_TRUE(told_to_save_at_once());
    ASSERT_EQ(all<EndRound>().size(), 1U);
    EXPECT_TRUE(std::holds_alternative<BoundaryMissed>(all<EndRound>()[0].cause));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    both_suspend();
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreSignalTest, WorkerThatFailsAtTheBoundaryFailsTheLeaveThoughTheOtherSavesLater) {
    gets_signal(SIGTERM);
    pass_answered(seconds(5));
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    exits(1, 0, error(0));
    pass_answered(milliseconds(2500));
    ASSERT_TRUE(told_to_save_at_once());
    exits(1, 1);
    expect_quit(128 + SIGTERM, QuitCause::save_failed);
}

TEST_F(AgentCoreSignalTest, LeaveThatTakesTooLongEndsByTheSignal) {
    gets_signal(SIGTERM);
    pass_answered(seconds(9));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(seconds(2));
    ASSERT_FALSE(all<SignalWorkers>().empty());
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGTERM);
    EXPECT_FALSE(all<SendLeave>().empty());
    exits(1, 0, crash(0, SIGTERM));
    exits(1, 1, crash(1, SIGKILL));
    expect_quit(128 + SIGTERM, QuitCause::save_timeout);
    EXPECT_EQ(quit()->signal, SIGTERM);
}

TEST_F(AgentCoreSignalTest, SuspendedWorkersSaveAfterHalfOfTheTime) {
    for (const bool has_daemon : {true, false}) {
        SCOPED_TRACE(has_daemon);
        restart();
        AgentCoreElasticTest::SetUp();
        stop_and_suspend();
        if (!has_daemon) {
            feed(LinkDown{});
        }
        gets_signal(SIGTERM);
        pass_answered(seconds(4));
        EXPECT_TRUE(all<PauseWorkers>().empty());
        pass_answered(seconds(2));
        EXPECT_TRUE(told_to_save_at_once());
        EXPECT_TRUE(all<SignalWorkers>().empty());
        expect_exit_when_both_have_left(kExitRequeue);
    }
}

TEST_F(AgentCoreSignalTest, NodeWaitsAtMostTenSecondsForAnAbsentDaemon) {
    AgentConfig config = config_of_two_workers();
    config.policy.shutdown_timeout = seconds(60);
    restart(config);
    AgentCoreElasticTest::SetUp();
    feed(LinkDown{});
    EXPECT_TRUE(core.would_drain());
    gets_signal(SIGTERM);
    pass(seconds(9));
    EXPECT_TRUE(all<PauseWorkers>().empty()) << "it may be back, and know of a later state";
    pass(seconds(1));
    EXPECT_TRUE(one(all<PauseWorkers>()).leave);
    EXPECT_FALSE(one(all<PauseWorkers>()).at_once);
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreSignalTest, DaemonThatReturnsInTimeLeadsTheDrain) {
    feed(LinkDown{});
    gets_signal(SIGTERM);
    pass(seconds(3));
    feed(LinkUp{});
    EXPECT_EQ(last(sent<Join>()).report.draining, "stopped by a signal");
    prepare(true);
    EXPECT_EQ(all<PauseWorkers>().size(), 1U);
}

TEST_F(AgentCoreSignalTest, NodeWithoutADaemonDoesNotWaitForEndedWorkers) {
    for (const bool failed : {false, true}) {
        SCOPED_TRACE(failed);
        restart();
        AgentCoreElasticTest::SetUp();
        feed(LinkDown{});
        gets_signal(SIGTERM);
        if (failed) {
            both_obey(1);
            expect_quit(128 + SIGTERM, QuitCause::ended_unsaved);
        } else {
            exits_unfinished(1, 0);
            exits_unfinished(1, 1);
            expect_quit(kExitRequeue, QuitCause::drained);
        }
    }
}

TEST_F(AgentCoreSignalTest, SecondSignalEndsADrainAndAnEchoDoesNot) {
    gets_signal(SIGTERM);
    gets_signal(SIGHUP);
    EXPECT_TRUE(core.draining());
    EXPECT_FALSE(core.leaving());
    pass_answered(seconds(2));
    gets_signal(SIGTERM);
    EXPECT_TRUE(core.leaving());
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SendLeave>().size(), 1U);
}

TEST_F(AgentCoreSignalTest, TimeForUserCodeEndsWithTheTimeOfTheSignal) {
    stop();
    suspends(1, 0);
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    gets_signal(SIGTERM);
    pass_answered(seconds(6));
    EXPECT_TRUE(told_to_save_at_once()) << "the other one need not wait";
    exits(1, 0);
    EXPECT_TRUE(all<TellAtWork>().empty());
    pass_answered(seconds(5));
    ASSERT_FALSE(all<SignalWorkers>().empty());
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, std::vector<std::uint32_t>{1});
}

TEST_F(AgentCoreSignalTest, FinishedWorkerIsEndedByTheSignal) {
    feed(WorkerAttached{0, false});
    EXPECT_FALSE(core.report().elastic);
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_FALSE(core.would_drain());
    stop();
    EXPECT_EQ(one(all<SignalWorkers>()).local_ranks, (std::vector<std::uint32_t>{0}));
    EXPECT_EQ(all<EndRound>()[0].local_ranks, (std::vector<std::uint32_t>{1}));
}

}  // namespace
}  // namespace regroup::agent
