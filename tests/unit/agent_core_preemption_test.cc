// SPDX-License-Identifier: Apache-2.0
//
// A node of resident workers that is told to go, with a daemon that may be away.
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_resident_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;

TEST_F(AgentCoreResidentTest, WithoutADaemonTheWorkersSaveAtTheNextBoundaryAllTheSame) {
    feed(LinkDown{});
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_FALSE(core.leaving());
    EXPECT_TRUE(all<PauseWorkers>().empty());  // It may be back at once.
    pass(seconds(5));                          // Half of the time that it has.
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    expect_exit_when_both_have_left(kExitRequeue);
    EXPECT_EQ(quit()->reason, "drained: stopped by SIGTERM");
}

TEST_F(AgentCoreResidentTest, WithoutADaemonWhoIsToLeaveAndHasParkedSavesWhatItHas) {
    feed(LinkDown{});
    feed(QuitRequested{SIGTERM});
    parks(1, 0);
    parks(1, 1);
    pass(seconds(5));  // Half of the time that it has.
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].at_once);
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest,
       WithoutADaemonNobodyWaitsOnceTheWorkersHaveSeenToTheirStateThemselves) {
    feed(LinkDown{});
    feed(QuitRequested{SIGTERM});
    exits_unfinished(1, 0);
    exits_unfinished(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WithoutADaemonNobodyWaitsForWorkersThatAreLost) {
    feed(LinkDown{});
    feed(QuitRequested{SIGTERM});
    exits(1, 0, crash(0, SIGTERM));
    exits(1, 1, crash(1, SIGTERM));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, 128 + SIGTERM);
    EXPECT_EQ(quit()->reason, "stopped by SIGTERM; the round ended before the state was saved");
}

TEST_F(AgentCoreResidentTest, AWorkerThatEndsOfItselfWhileItsNodeIsToLeaveHasNotFailed) {
    feed(QuitRequested{SIGTERM});
    exits_unfinished(1, 0);
    EXPECT_FALSE(core.report().failure.has_value());
    exits_unfinished(1, 1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WorkThatWasGivenTimeHasLessOfItOnceTheNodeIsToLeave) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    feed(WorkersAtWork{RoundId{1}, seconds(200)});
    feed(QuitRequested{SIGTERM});
    pass_answered(seconds(6));
    ASSERT_FALSE(all<SignalWorkers>().empty());  // In time for the other to save what it has.
    EXPECT_EQ(all<SignalWorkers>()[0].local_ranks, std::vector<std::uint32_t>{1});
    EXPECT_TRUE(all<TellAtWork>().empty());
    EXPECT_FALSE(quit().has_value());
}

TEST_F(AgentCoreResidentTest, ADaemonThatIsBackInTimeLeadsTheDrain) {
    feed(LinkDown{});
    feed(QuitRequested{SIGTERM});
    pass(seconds(3));
    feed(LinkUp{});
    ASSERT_FALSE(sent<Join>().empty());
    EXPECT_EQ(sent<Join>().back().report.draining, "stopped by SIGTERM");
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    EXPECT_EQ(all<PauseWorkers>().size(), 1U);
}

}  // namespace
}  // namespace regroup::agent
