// SPDX-License-Identifier: Apache-2.0
//
// A worker that exits with code 0 in the middle of its training has failed.
#include "tests/unit/agent_core_elastic_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;

TEST_F(AgentCoreElasticTest, WorkerThatEndsWithSuccessInTheMiddleOfItsTrainingHasFailed) {
    const WorkerExited early{RoundId{1}, 0, std::nullopt, false, early_end(0)};
    EXPECT_EQ(core.failure_in(early), early_end(0));
    feed(early);
    EXPECT_TRUE(reported(NodeState::stopping));
    EXPECT_EQ(core.report().failure, early_end(0));
    EXPECT_EQ(one(all<EndRound>()).local_ranks, (std::vector<std::uint32_t>{1}));
    suspends(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_EQ(core.report().failure, early_end(0));
}

TEST_F(AgentCoreElasticTest, LastWorkerOfANodeThatEndsBeforeItFinishesHasFailed) {
    exits(1, 0, crash(0));
    assign(2);
    exits(1, 1, crash(1));
    attach(0);
    attach(1);
    exits_unfinished(2, 0);
    exits_unfinished(2, 1);
    EXPECT_EQ(core.report().state, NodeState::stopped);
    EXPECT_EQ(core.report().failure, early_end(0));
}

TEST_F(AgentCoreElasticTest, FinishedWorkerEndsWithSuccessWhileOthersStillFinish) {
    // Its last message may be the only sign that its training has finished.
    feed(WorkerExited{RoundId{1}, 0, std::nullopt, true});
    EXPECT_EQ(core.report().state, NodeState::running);
    feed(WorkerAttached{1, false});
    exits_unfinished(1, 1);
    EXPECT_TRUE(reported(NodeState::finished));
    EXPECT_FALSE(core.report().failure);
}

TEST_F(AgentCoreElasticTest, LeavingWorkerEndsWithSuccess) {
    prepare(true);
    exits_unfinished(1, 0);
    exits_unfinished(1, 1);
    expect_exit(kExitRequeue);
    EXPECT_FALSE(core.report().failure);
}

TEST_F(AgentCoreElasticTest, WorkerThatGivesUpAfterTheEndOfItsRoundHasNotFailed) {
    hear(Stop{RoundId{1}, "another node is lost"});
    exits_unfinished(1, 0);
    suspends(1, 1);
    exits_unfinished(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    EXPECT_FALSE(core.report().failure);
}

TEST_F(AgentCoreElasticTest, AnnouncedFailureCountsWithAnyExitCode) {
    hear(Stop{RoundId{1}, "a connection broke"});
    WorkerExited early{RoundId{1}, 0, std::nullopt, false, early_end(0)};
    early.unfinished->announced = true;
    feed(early);
    EXPECT_EQ(core.report().failure, early.unfinished);
}

TEST_F(AgentCoreTest, ProgramsWithoutALoopSucceedWithCodeZero) {
    in_round(1);
    exits_unfinished(1, 0);
    exits_unfinished(1, 1);
    EXPECT_TRUE(all<SignalWorkers>().empty());
    EXPECT_EQ(core.report().state, NodeState::finished);
}

}  // namespace
}  // namespace regroup::agent
