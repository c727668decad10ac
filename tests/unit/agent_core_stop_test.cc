// SPDX-License-Identifier: Apache-2.0
//
// Workers that are not elastic and ask in each step whether to stop.
#include <chrono>
#include <csignal>

#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;

class AgentCoreStopTest : public AgentCoreTest {
   protected:
    AgentCoreStopTest() {
        in_round(1);
        attach(0);
        attach(1);
    }
    void attach(std::uint32_t local_rank) { feed(WorkerAttached{local_rank, false, true, true}); }
    void stop(bool planned) { hear(Stop{RoundId{1}, "node b leaves", planned}); }
    /// The worker has stopped with the other ranks.
    void stops(std::uint32_t local_rank) {
        WorkerFailure end = early_end(local_rank);
        end.kind = FailureKind::retry;
        feed(WorkerExited{RoundId{1}, local_rank, std::nullopt, false, end});
    }
    void finishes(std::uint32_t local_rank) {
        feed(WorkerExited{RoundId{1}, local_rank, std::nullopt, true});
    }
    [[nodiscard]] bool killed() const {
        return !all<SignalWorkers>().empty() && all<SignalWorkers>().back().signal == SIGKILL;
    }
};

TEST_F(AgentCoreStopTest, PlannedStopAsksTheWorkersAndSignalsNobody) {
    stop(true);
    EXPECT_EQ(one(all<PauseWorkers>()).round, RoundId{1});
    EXPECT_FALSE(one(all<PauseWorkers>()).leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_TRUE(all<EndRound>().empty()) << "they may still write checkpoints";
    EXPECT_EQ(core.report().state, NodeState::stopping);
    stops(0);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    stops(1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());
    assign(2);
    EXPECT_TRUE(launched(2));
}

TEST_F(AgentCoreStopTest, StopAfterAFailureEndsTheWorkersAtOnce) {
    stop(false);
    EXPECT_EQ(one(all<SignalWorkers>()).signal, SIGTERM);
    EXPECT_FALSE(all<EndRound>().empty());
    EXPECT_TRUE(all<PauseWorkers>().empty());
}

TEST_F(AgentCoreStopTest, WorkersThatDoNotAskYetAreEndedByAPlannedStop) {
    feed(WorkerAttached{1, false, true, false});
    stop(true);
    EXPECT_EQ(one(all<SignalWorkers>()).local_ranks, (std::vector<std::uint32_t>{0, 1}));
}

TEST_F(AgentCoreStopTest, WorkersThatDoNotStopInTimeAreKilled) {
    stop(true);
    pass_answered(seconds(9));
    EXPECT_FALSE(killed());
    pass_answered(seconds(2));
    EXPECT_TRUE(killed());
}

TEST_F(AgentCoreStopTest, TrainingThatFinishesBeforeItStopsIsFinished) {
    stop(true);
    finishes(0);
    finishes(1);
    EXPECT_EQ(core.report().state, NodeState::finished);
}

TEST_F(AgentCoreStopTest, SignalAsksTheWorkersAndTheDaemon) {
    EXPECT_TRUE(core.would_drain());
    gets_signal(SIGTERM);
    EXPECT_TRUE(one(all<PauseWorkers>()).leave);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_FALSE(last(sent<Report>()).report.draining.empty());
    stop(true);
    EXPECT_EQ(all<PauseWorkers>().size(), 1U) << "they know";
    stops(0);
    stops(1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_FALSE(core.report().failure.has_value());
    EXPECT_FALSE(quit().has_value());
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreStopTest, WorkersThatFinishAfterTheSignalHaveFinished) {
    gets_signal(SIGTERM);
    finishes(0);
    finishes(1);
    EXPECT_EQ(core.report().state, NodeState::finished);
    hear(Prepare{RoundId{1}, true, "node a leaves"});
    expect_quit(0, QuitCause::finished);
}

TEST_F(AgentCoreStopTest, SignalStopsTheWorkersWithoutADaemon) {
    feed(LinkDown{});
    gets_signal(SIGINT);
    EXPECT_FALSE(all<PauseWorkers>().empty());
    stops(0);
    stops(1);
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreStopTest, NodeWhoseWorkersHaveStoppedLeavesWhenItsDaemonGoes) {
    gets_signal(SIGTERM);
    stops(0);
    stops(1);
    EXPECT_FALSE(quit().has_value());
    feed(LinkDown{});
    pass(seconds(0));
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreStopTest, NodeWhoseDaemonSaysNothingLeavesInTime) {
    gets_signal(SIGTERM);
    stops(0);
    stops(1);
    pass_answered(seconds(11));
    expect_quit(kExitRequeue, QuitCause::drained);
}

TEST_F(AgentCoreStopTest, WorkersThatDoNotStopWithinTheTimeOfTheSignalAreKilled) {
    gets_signal(SIGTERM);
    pass_answered(seconds(4));
    stop(true);
    pass_answered(seconds(5));
    EXPECT_FALSE(killed());
    pass_answered(seconds(2));
    EXPECT_TRUE(killed());
    exits(1, 0, crash(0, SIGKILL));
    exits(1, 1, crash(1, SIGKILL));
    expect_exit(128 + SIGTERM);
}

TEST_F(AgentCoreStopTest, SecondSignalEndsTheWorkers) {
    gets_signal(SIGTERM);
    pass_answered(seconds(2));
    gets_signal(SIGTERM);
    EXPECT_EQ(one(all<SignalWorkers>()).signal, SIGTERM);
    both_obey(1);
    expect_exit(128 + SIGTERM);
}

// A scheduler signals all processes of a node.
TEST_F(AgentCoreStopTest, SignalAfterTheWorkersHaveStoppedDrainsTheNode) {
    stops(0);
    stops(1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    gets_signal(SIGTERM);
    expect_quit(kExitRequeue, QuitCause::drained);
}

// SIGTERM to a worker by hand.
TEST_F(AgentCoreStopTest, WorkersThatStopUnaskedFailToBeTriedAgainAndEndNoOther) {
    stops(0);
    EXPECT_TRUE(all<SignalWorkers>().empty()) << "the other one saves its state";
    EXPECT_TRUE(all<EndRound>().empty());
    ASSERT_TRUE(core.report().failure.has_value());
    EXPECT_EQ(core.report().failure->kind, FailureKind::retry);
    EXPECT_TRUE(core.report().failure->has_stopped());
    stop(true);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    stops(1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
}

}  // namespace
}  // namespace regroup::agent
