// SPDX-License-Identifier: Apache-2.0
//
// Resident workers in planned changes: pauses, and drains.
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_resident_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;

// ---- Planned changes.

TEST_F(AgentCoreResidentTest, PrepareParksAtAStepBoundaryWithoutEndingTheRoundBefore) {
    prepare(false);
    prepare(false);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_FALSE(all<PauseWorkers>()[0].leave);
    parks(1, 0);
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_TRUE(all<EndRound>().empty());
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreResidentTest, ASpareWithWhichTheRendezvousGoesAsksTheOthersToSaveTheirStateFirst) {
    AgentConfig config = config_of_two_workers();
    config.offer.hosts_rendezvous = true;
    core = AgentCore(config, now);
    feed(LinkUp{});
    EXPECT_FALSE(core.would_drain());
    Waiting waiting;
    waiting.spare = true;
    hear(waiting);
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    EXPECT_EQ(core.report().draining, "stopped by SIGTERM");
    hear(rendezvous::Prepare{RoundId::none, true, "node a leaves"});
    ASSERT_EQ(all<Quit>().size(), 1U);
    EXPECT_EQ(all<Quit>()[0].exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WhoIsToLeaveGoesWhenItsWorkersHaveEnded) {
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    exits(1, 0);
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_EQ(sent<Leave>().size(), 1U);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ASignalBeginsADrain) {
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_FALSE(core.would_drain());
    EXPECT_TRUE(core.draining());
    EXPECT_TRUE(sent<Leave>().empty());
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(sent<Report>()[0].report.draining, "stopped by SIGTERM");
    EXPECT_TRUE(all<SignalWorkers>().empty());
    prepare(true);
    expect_exit_when_both_have_left(kExitRequeue);
    EXPECT_EQ(quit()->signal, 0);
}

TEST_F(AgentCoreResidentTest, WhoWasAskedToGoSaysSoThoughTheEndOfTheJobIsHeardFirst) {
    feed(QuitRequested{SIGTERM});
    prepare(true);
    exits(1, 0);
    Verdict verdict;
    verdict.exit_code = kExitRequeue;
    hear(Closed{verdict});
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
    EXPECT_EQ(quit()->reason, "drained: stopped by SIGTERM");
}

TEST_F(AgentCoreResidentTest, ADrainThatTakesTooLongEndsAsASignalDoes) {
    feed(QuitRequested{SIGTERM});
    pass_answered(seconds(9));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass_answered(seconds(2));
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(all<SignalWorkers>()[0].signal, SIGTERM);
    EXPECT_FALSE(sent<Leave>().empty());
    both_obey(1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->signal, SIGTERM);
}

TEST_F(AgentCoreResidentTest, ASecondSignalEndsADrainAndAnEchoDoesNot) {
    feed(QuitRequested{SIGTERM});
    feed(QuitRequested{SIGHUP});
    EXPECT_TRUE(core.draining());
    pass_answered(seconds(2));
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(core.leaving());
    ASSERT_EQ(all<SignalWorkers>().size(), 1U);
    EXPECT_EQ(sent<Leave>().size(), 1U);
}

TEST_F(AgentCoreResidentTest, ASignalBetweenTwoRoundsBeginsADrainToo) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    ASSERT_FALSE(sent<Report>().empty());
    EXPECT_EQ(sent<Report>().back().report.draining, "stopped by SIGTERM");
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    expect_exit_when_both_have_left(kExitRequeue);
    EXPECT_EQ(quit()->reason, "drained: stopped by SIGTERM");
}

// The others may have nothing: the job's last state may be here.
class AgentCoreMixedTest : public AgentCoreResidentTest {
   protected:
    // Worker 0 has come to step 12; worker 1 is new, and had yet to attach as round 2 ended.
    void SetUp() override {
        AgentCoreResidentTest::SetUp();
        exits(1, 1, crash(1, SIGKILL));
        feed(WorkerParked{0, RoundId{1}, false, 0, 12});
        assign(2);
        hear(Stop{RoundId{2}, "another node is lost"});
        feed(WorkerParked{0, RoundId{2}, false, 0, 12});
        feed(StepsCommitted{12});
        effects.clear();
    }
    void expect_that_it_leaves_with_its_state() {
        ASSERT_EQ(all<PauseWorkers>().size(), 1U);
        EXPECT_TRUE(all<PauseWorkers>()[0].leave);
        exits(1, 0);
        ASSERT_TRUE(quit().has_value());
        EXPECT_EQ(quit()->exit_code, kExitRequeue);
    }
};

TEST_F(AgentCoreMixedTest, ASignalBeginsADrain) {
    exits(2, 1, crash(1, SIGTERM));
    ASSERT_EQ(core.report().state, NodeState::stopped);
    ASSERT_FALSE(core.report().resident);
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    hear(Prepare{RoundId{2}, true, "node a leaves"});
    expect_that_it_leaves_with_its_state();
}

TEST_F(AgentCoreMixedTest, SoDoesOneWhileTheNewOneIsEnding) {
    ASSERT_EQ(core.report().state, NodeState::stopping);
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    exits(2, 1, crash(1, SIGTERM));
    hear(Prepare{RoundId{2}, true, "node a leaves"});
    expect_that_it_leaves_with_its_state();
}

TEST_F(AgentCoreMixedTest, ItSavesItsStateIfAllLeave) {
    exits(2, 1, crash(1, SIGTERM));
    rendezvous::Verdict verdict;
    verdict.outcome = rendezvous::Outcome::stopped;
    verdict.exit_code = kExitRequeue;
    hear(rendezvous::Closed{verdict});
    expect_that_it_leaves_with_its_state();
}

TEST_F(AgentCoreResidentTest, ASignalAfterTheLastWorkerWasLostLeavesItToTheDaemonWhoHasTheState) {
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_FALSE(core.has_workers());
    feed(QuitRequested{SIGTERM});
    EXPECT_TRUE(sent<Leave>().empty());
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ParkedWorkersSaveTheirStateWithoutADaemon) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    feed(LinkDown{});
    EXPECT_TRUE(core.would_drain());
    feed(QuitRequested{SIGTERM});
    pass(seconds(4));
    EXPECT_TRUE(all<PauseWorkers>().empty()) << "the daemon may be back, and know of a later state";
    pass(seconds(2));  // Half of the time that a drain may take.
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    feed(LinkUp{});
    assign(2);  // Too late: they save.
    EXPECT_TRUE(all<AssignWorkers>().empty());
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest, AFailureWhilePausingStopsTheRoundAsEver) {
    prepare(false);
    parks(1, 0);
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->signal, SIGSEGV);
}

// ---- Drains that come late, or meet a death.

TEST_F(AgentCoreResidentTest, WhoHearsOfItsLeaveAfterTheBoundarySavesAllTheSame) {
    parks(1, 0);
    hear(Prepare{RoundId{1}, true, "all leave"});  // It is stopping by now.
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<PauseWorkers>()[0].leave);
    parks(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    hear(Prepare{RoundId{1}, true, "all leave"});  // It knows that all have come so far.
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreResidentTest, ParkedWorkersThatAreToLeaveAreToldAndWaitedFor) {
    hear(Stop{RoundId{1}, "another node is lost"});
    parks(1, 0);
    parks(1, 1);
    hear(Prepare{RoundId{1}, true, "all leave"});
    hear(Prepare{RoundId{1}, true, "all leave"});
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    exits(1, 0);
    assign(2);
    EXPECT_TRUE(all<AssignWorkers>().empty());
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->exit_code, kExitRequeue);
}

TEST_F(AgentCoreResidentTest, WorkersThatVotedBeforeTheirNodeKnewPark) {
    prepare(true);
    parks(1, 0);  // They had looked at their pages just before.
    parks(1, 1);
    EXPECT_FALSE(quit().has_value());
    ASSERT_TRUE(reported(NodeState::stopped));
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 2U);
    EXPECT_TRUE(all<PauseWorkers>()[1].at_once);
    expect_exit_when_both_have_left(kExitRequeue);
}

}  // namespace
}  // namespace regroup::agent
