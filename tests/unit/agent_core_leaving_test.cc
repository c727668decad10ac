// SPDX-License-Identifier: Apache-2.0
//
// How a node of elastic workers changes at a step boundary, and how it leaves the job.
#include <functional>

#include "agent/text/cause_text.h"
#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_leaving_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- Planned changes.

TEST_F(AgentCoreLeavingTest, PrepareSuspendsWorkersAtAStepBoundaryAndKeepsTheRoundUntilThen) {
    prepare(false);
    prepare(false);
    EXPECT_FALSE(one(all<PauseWorkers>()).leave);
    suspends(1, 0);
    EXPECT_EQ(core.report().state, NodeState::running);
    EXPECT_TRUE(all<EndRound>().empty());
    suspends(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreLeavingTest, FailureWhilePausingStopsTheRound) {
    prepare(false);
    suspends(1, 0);
    exits(1, 1, crash(1));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->signal, SIGSEGV);
}

// ---- At a step boundary.

TEST_F(AgentCoreLeavingTest, SignalAsksTheDaemonForADrain) {
    EXPECT_TRUE(core.would_drain());
    gets_signal(SIGTERM);
    EXPECT_FALSE(core.would_drain());
    EXPECT_TRUE(core.draining());
    EXPECT_TRUE(all<SendLeave>().empty());
    EXPECT_EQ(one(sent<Report>()).report.draining, "stopped by a signal");
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_TRUE(all<PauseWorkers>().empty());
    prepare(true);
    prepare(true);
    EXPECT_TRUE(one(all<PauseWorkers>()).leave);
    EXPECT_FALSE(one(all<PauseWorkers>()).at_once);
    expect_exit_when_both_have_left(kExitRequeue);
    EXPECT_EQ(quit()->reason.cause, QuitCause::drained);
    EXPECT_EQ(quit()->signal, 0);
}

// Two workers of a node that leaves at a boundary: their ends, and the node's exit code.
TEST_F(AgentCoreLeavingTest, EndsOfWorkersAtTheBoundaryDecideTheExitCode) {
    struct Case {
        const char* what;
        std::function<void()> happens;
        int exit_code;
        QuitCause cause;
    };
    const std::vector<Case> cases = {
        {"both save",
         [this] {
             exits_unfinished(1, 0);
             exits_unfinished(1, 1);
         },
         kExitRequeue, QuitCause::drained},
        {"one fails after the other has saved",
         [this] {
             exits(1, 0);
             exits(1, 1, error(1));
         },
         kExitJobFailed, QuitCause::save_failed},
        {"one fails before the other has saved",
         [this] {
             exits(1, 0, error(0));
             exits(1, 1);
         },
         kExitJobFailed, QuitCause::save_failed},
        {"one saves though the round is stopped for others",
         [this] {
             exits(1, 0);
             stop();
             exits(1, 1);
         },
         kExitRequeue, QuitCause::drained},
        {"one has saved, and the other suspends and saves then",
         [this] {
             exits(1, 0);
             suspends(1, 1);
             EXPECT_TRUE(told_to_save_at_once());
             exits(1, 1);
         },
         kExitRequeue, QuitCause::drained},
    };
    for (const Case& one : cases) {
        SCOPED_TRACE(one.what);
        restart();
        AgentCoreElasticTest::SetUp();
        prepare(true);
        one.happens();
        expect_quit(one.exit_code, one.cause);
        EXPECT_EQ(all<SendLeave>().size(), 1U);
    }
}

TEST_F(AgentCoreLeavingTest, DaemonDecidesWhenTheRoundBreaksBeforeTheBoundary) {
    gets_signal(SIGTERM);
    prepare(true);
    effects.clear();
    stop();
    both_suspend();
    ASSERT_TRUE(reported(NodeState::stopped));
    EXPECT_EQ(sent<Report>().back().report.draining, "stopped by a signal");
    EXPECT_TRUE(all<PauseWorkers>().empty()) << "nobody is to save anything yet";
    EXPECT_FALSE(quit().has_value());
    assign(2);
    ASSERT_EQ(all<AssignWorkers>().size(), 1U);
    hear(Prepare{RoundId{2}, true, "node a leaves"});
    EXPECT_EQ(one(all<PauseWorkers>()).round, RoundId{2});
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreLeavingTest, NodeWhoseWorkersAllDiedBeforeTheBoundaryTakesPartInTheNextRound) {
    prepare(true);
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_FALSE(quit().has_value());
    assign(2);
    EXPECT_TRUE(launched(2));
}

TEST_F(AgentCoreLeavingTest, TrainingThatEndsAtTheBoundaryIsFinished) {
    gets_signal(SIGTERM);
    prepare(true);
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    feed(WorkerExited{RoundId{1}, 1, std::nullopt, true});
    EXPECT_TRUE(reported(NodeState::finished));
    EXPECT_FALSE(quit().has_value());
    pass_answered(seconds(11));  // It waits for the others for a limited time.
    expect_quit(0, QuitCause::finished);
    EXPECT_EQ(quit()->signal, 0);
}

// ---- Out of a round.

TEST_F(AgentCoreLeavingTest, SuspendedWorkersSaveAtOnceWhenTheyAreToldToLeave) {
    stop_and_suspend();
    EXPECT_TRUE(core.would_drain());
    gets_signal(SIGTERM);
    EXPECT_TRUE(all<SendLeave>().empty());
    prepare(true);
    prepare(true);
    ASSERT_EQ(all<PauseWorkers>().size(), 1U);
    EXPECT_TRUE(told_to_save_at_once());
    EXPECT_TRUE(all<SignalWorkers>().empty());
    assign(2);  // Too late: they save.
    EXPECT_TRUE(all<AssignWorkers>().empty());
    expect_exit_when_both_have_left(kExitRequeue);
}

TEST_F(AgentCoreLeavingTest, PrepareForARunningRoundIsAnsweredWithTheReport) {
    stop_and_suspend();
    hear(Prepare{RoundId{1}, true, "all leave", true});
    EXPECT_TRUE(all<PauseWorkers>().empty());
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreLeavingTest, PrepareWhileWorkersSuspendIsAnsweredWithTheReport) {
    stop();
    suspends(1, 0);
    effects.clear();
    prepare(true);
    EXPECT_TRUE(all<PauseWorkers>().empty());
    EXPECT_TRUE(reported(NodeState::stopping));
}

TEST_F(AgentCoreLeavingTest, NodeOutsideALaterRoundEndsAndSavesNothing) {
    stop_and_suspend();
    hear(Prepare{RoundId{1}, true, "node a is drained", false, true});
    EXPECT_TRUE(all<PauseWorkers>().empty());
    EXPECT_EQ(one(all<SignalWorkers>()).signal, SIGKILL);
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    expect_quit(kExitRequeue, QuitCause::drained);
    EXPECT_EQ(text_of(quit()->reason.why), "node a is drained");
}

TEST_F(AgentCoreLeavingTest, WorkerThatFailsToSaveFailsTheLeave) {
    stop_and_suspend();
    prepare(true);
    exits(1, 0);
    exits(1, 1, error(1));
    expect_quit(kExitJobFailed, QuitCause::save_failed);
}

TEST_F(AgentCoreLeavingTest, DaemonDecidesAboutTheStateOfLostWorkers) {
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    ASSERT_FALSE(core.has_workers());
    gets_signal(SIGTERM);
    EXPECT_TRUE(all<SendLeave>().empty());
    prepare(true);
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreLeavingTest, WorkerThatEndsByItselfWhileItsNodeLeavesHasNotFailed) {
    gets_signal(SIGTERM);
    exits_unfinished(1, 0);
    EXPECT_FALSE(core.report().failure.has_value());
    exits_unfinished(1, 1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    prepare(true);
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreLeavingTest, StandbyThatHostsTheRendezvousAsksTheOthersToSaveFirst) {
    AgentConfig config = config_of_two_workers();
    config.offer.hosts_rendezvous = true;
    core = AgentCore(config, now);
    feed(LinkUp{});
    EXPECT_FALSE(core.would_drain());
    Waiting waiting;
    waiting.standby = true;
    hear(waiting);
    gets_signal(SIGTERM);
    EXPECT_TRUE(all<SendLeave>().empty());
    EXPECT_EQ(core.report().draining, "stopped by a signal");
    hear(Prepare{RoundId::none, true, "node a leaves"});
    expect_quit(kExitRequeue, QuitCause::drained);
}

// One worker may hold the state while the other one is new and has not attached.
TEST_F(AgentCoreLeavingTest, NodeWithOneWorkerThatHoldsStateLeavesWithIt) {
    for (const bool by_signal : {true, false}) {
        SCOPED_TRACE(by_signal ? "by a signal" : "with all others");
        restart();
        AgentCoreElasticTest::SetUp();
        exits(1, 1, crash(1, SIGKILL));
        suspends_at(12, 0);
        assign(2);
        hear(Stop{RoundId{2}, "another node is lost"});
        feed(WorkerSuspended{0, RoundId{2}, false, 12});
        feed(StepsCommitted{12});
        effects.clear();
        if (by_signal) {
            gets_signal(SIGTERM);
        }
        exits(2, 1, crash(1, SIGTERM));
        EXPECT_TRUE(all<SendLeave>().empty());
        if (by_signal) {
            hear(Prepare{RoundId{2}, true, "node a leaves"});
        } else {
            close(kExitRequeue);
        }
        EXPECT_TRUE(told_to_save_at_once());
        exits(1, 0);
        expect_exit(kExitRequeue);
    }
}

// ---- A verdict meanwhile.

TEST_F(AgentCoreLeavingTest, VerdictOfADrainedJobLetsWorkersSave) {
    stop_and_suspend();
    close(kExitRequeue);
    EXPECT_TRUE(told_to_save_at_once());
    EXPECT_TRUE(all<SignalWorkers>().empty());
    pass(config_of_two_workers().policy.prepare_timeout + seconds(1));
    ASSERT_FALSE(all<SignalWorkers>().empty());  // After the limit.
}

TEST_F(AgentCoreLeavingTest, LeavingNodeSavesItsStateThoughTheJobFails) {
    prepare(true);
    stop();
    both_suspend();
    close(1);
    EXPECT_TRUE(told_to_save_at_once());
    EXPECT_TRUE(all<SignalWorkers>().empty());
    expect_exit_when_both_have_left(1);
}

TEST_F(AgentCoreLeavingTest, VerdictLetsTheRemainingWorkersSave) {
    prepare(true);
    exits(1, 0, crash(0, SIGKILL));
    suspends(1, 1);
    ASSERT_TRUE(core.report().failure.has_value());
    close(kExitRequeue);
    pass(seconds(5));
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    expect_exit(kExitRequeue);
}

TEST_F(AgentCoreLeavingTest, SignalledNodeIsDrainedThoughTheVerdictComesFirst) {
    gets_signal(SIGTERM);
    prepare(true);
    exits(1, 0);
    close(kExitRequeue);
    EXPECT_FALSE(quit().has_value());
    exits(1, 1);
    expect_quit(kExitRequeue, QuitCause::drained);
    EXPECT_TRUE(std::holds_alternative<AskedBySignal>(quit()->reason.why));
}

}  // namespace
}  // namespace regroup::agent
