// SPDX-License-Identifier: Apache-2.0
//
// The invariants of agent_core.h for workers outside a round: suspended, or started ahead.
#include <functional>

#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_elastic_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::seconds;
using Ranks = std::vector<std::uint32_t>;

// ---- Suspended.

TEST_F(AgentCoreElasticTest, DeathOfASuspendedWorkerIsNoFailure) {
    hear(Stop{RoundId{1}, "another node is lost"});
    both_suspend();
    exits(1, 0, crash(0));
    EXPECT_FALSE(core.report().failure.has_value());
    assign(2);
    EXPECT_EQ(one(all<LaunchWorkers>()).local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreElasticTest, DeathOfTheOnlySuspendedWorkerWithAStateIsReportedAtOnce) {
    feed(StepsCommitted{7});
    hear(rendezvous::Stop{RoundId{1}, "a peer is lost"});
    suspends_at(6, 0);
    suspends_at(7, 1);
    effects.clear();
    exits(1, 1, crash(1, SIGKILL));
    EXPECT_EQ(one(sent<rendezvous::Report>()).report.held_step, 6U);
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_EQ(sent<rendezvous::Report>().size(), 2U);
    EXPECT_EQ(sent<rendezvous::Report>().back().report.held_step, 0U);
}

TEST_F(AgentCoreElasticTest, StateIsGoneWithTheLastProcessThatHadIt) {
    feed(StepsCommitted{9});
    exits(1, 0, error(0));
    EXPECT_EQ(core.report().held_step, 9U);
    exits(1, 1, error(1));
    EXPECT_EQ(core.report().held_step, 0U);
    EXPECT_EQ(core.report().step, 9U);
    EXPECT_EQ(last(sent<Report>()).report.held_step, 0U);
}

// ---- Standbys.

TEST_F(AgentCoreElasticTest, StandbyStartsItsWorkersAheadAndAssignsThemLater) {
    restart();
    Waiting waiting;
    waiting.standby = true;
    hear(waiting);
    EXPECT_TRUE(all<PrestartWorkers>().empty());
    hear_that_it_is_a_standby();
    hear_that_it_is_a_standby();
    EXPECT_EQ(one(all<PrestartWorkers>()).local_ranks, (Ranks{0, 1}));
    EXPECT_EQ(core.report().state, NodeState::stopped);
    assign(7);
    EXPECT_EQ(one(all<AssignWorkers>()).local_ranks, (Ranks{0, 1}));
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    // Their Hello comes late.
    suspends(0, 0);
    EXPECT_FALSE(core.is_suspended(0));
    EXPECT_EQ(core.report().state, NodeState::running);
}

// Finished in a round that the others must repeat.
TEST_F(AgentCoreElasticTest, FinishedNodeCanBeAStandby) {
    both_succeed(1);
    ASSERT_EQ(core.report().state, NodeState::finished);
    hear_that_it_is_a_standby();
    ASSERT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_EQ(core.report().state, NodeState::finished);
    suspends(0, 0);
    EXPECT_EQ(core.report().state, NodeState::finished);
    assign(3);
    EXPECT_EQ(one(all<AssignWorkers>()).local_ranks, (Ranks{0, 1}));
}

TEST_F(AgentCoreElasticTest, WorkerThatDiesAheadOfARoundIsReplacedWithoutAFailure) {
    begin_as_standby();
    exits(0, 0, error(0));
    hear_that_it_is_a_standby();
    EXPECT_EQ(all<PrestartWorkers>().size(), 1U);
    EXPECT_FALSE(core.report().failure.has_value());
    assign(7);
    EXPECT_EQ(one(all<LaunchWorkers>()).local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreElasticTest, WorkerThatDiesAheadOfARoundIsRestartedAtGrowingIntervals) {
    begin_as_standby();
    suspends(0, 0);
    suspends(0, 1);
    ASSERT_TRUE(core.report().elastic);
    for (const int delay : {1, 2, 4, 8, 16, 32, 60, 60}) {
        effects.clear();
        exits(0, 0, crash(0, SIGKILL));
        EXPECT_FALSE(
            core.report().elastic);  // So regroup status shows that they are being started.
        EXPECT_TRUE(reported(NodeState::stopped));
        hear_that_it_is_a_standby();
        pass_answered(seconds(delay) - std::chrono::milliseconds(1));
        suspends(0, 1);
        EXPECT_TRUE(all<PrestartWorkers>().empty());
        EXPECT_FALSE(core.report().elastic);
        pass_answered(std::chrono::milliseconds(1));
        EXPECT_EQ(one(all<PrestartWorkers>()).local_ranks, (Ranks{0}));
        suspends(0, 0);
        EXPECT_TRUE(core.report().elastic);
    }
    // After a long wait the delay begins anew.
    pass_answered(seconds(60));
    effects.clear();
    exits(0, 0, crash(0, SIGKILL));
    pass_answered(seconds(1));
    EXPECT_EQ(all<PrestartWorkers>().size(), 1U);
}

TEST_F(AgentCoreElasticTest, StandbyLeavesAtOnceAsDrained) {
    for (const bool by_signal : {true, false}) {
        SCOPED_TRACE(by_signal ? "by a signal" : "by an operator");
        begin_as_standby();
        EXPECT_FALSE(core.would_drain());
        effects.clear();
        if (by_signal) {
            gets_signal(SIGTERM);
        } else {
            hear(Prepare{RoundId{1}, true, "drained by an operator"});
        }
        EXPECT_EQ(all<SendLeave>().size(), 1U);
        EXPECT_TRUE(one(all<SignalWorkers>()).force());
        EXPECT_EQ(one(all<SignalWorkers>()).local_ranks, (Ranks{0, 1}));
        exits(0, 0, crash(0, SIGKILL));
        exits(0, 1, crash(1, SIGKILL));
        expect_exit(kExitRequeue);
        EXPECT_EQ(quit()->signal, 0);
    }
}

// ---- A lost worker is replaced while the others leave the round.

class AgentCoreReplacementTest : public AgentCoreElasticTest {
   protected:
    void SetUp() override { begin(2); }
    void begin(std::uint32_t workers) {
        AgentConfig config = config_of_two_workers();
        config.policy.restarts_max = 3;
        config.policy.on_exit[2] = Reaction::fail;
        config.offer.workers = workers;
        restart(config);
        in_round(1);
        for (std::uint32_t local_rank = 0; local_rank < workers; ++local_rank) {
            feed(WorkerAttached{local_rank, true, true});
        }
        effects.clear();
    }
};

TEST_F(AgentCoreReplacementTest, ReplacementStartsWhileItsPeersLeaveTheRound) {
    exits(1, 0, crash(0, SIGKILL));
    EXPECT_EQ(one(all<PrestartWorkers>()).local_ranks, (Ranks{0}));
    EXPECT_EQ(core.report().state, NodeState::stopping);
    EXPECT_TRUE(core.report().elastic);
    suspends(0, 0);
    EXPECT_EQ(core.report().state, NodeState::stopping);  // Its peer trains.
    suspends(1, 1);
    EXPECT_TRUE(reported(NodeState::stopped));
    assign(2);
    EXPECT_TRUE(all<LaunchWorkers>().empty());
    EXPECT_EQ(one(all<AssignWorkers>()).local_ranks, (Ranks{0, 1}));
    // The next loss may be that of the new one.
    feed(WorkerAttached{0, true, true});
    exits(0, 0, crash(0, SIGKILL));
    EXPECT_EQ(all<PrestartWorkers>().size(), 2U);
}

TEST_F(AgentCoreReplacementTest, SecondLostWorkerIsReplacedAsSoonAsTheFirst) {
    begin(3);
    exits(1, 2, crash(2, SIGKILL));
    exits(1, 0, crash(0, SIGKILL));
    ASSERT_EQ(all<PrestartWorkers>().size(), 2U);
    EXPECT_EQ(all<PrestartWorkers>()[0].local_ranks, (Ranks{2}));
    EXPECT_EQ(all<PrestartWorkers>()[1].local_ranks, (Ranks{0}));
}

TEST_F(AgentCoreReplacementTest, NoWorkerIsStartedIfNoRoundIsExpected) {
    const auto replaced = [this](const std::function<void()>& before, WorkerFailure failure) {
        begin(2);
        before();
        effects.clear();
        exits(1, 0, std::move(failure));
        return !all<PrestartWorkers>().empty();
    };
    WorkerFailure hopeless = error(0);
    hopeless.exit_code = 2;
    EXPECT_FALSE(replaced([] {}, hopeless));
    EXPECT_FALSE(replaced([this] { gets_signal(SIGTERM); }, crash(0)));
    EXPECT_FALSE(replaced([this] { prepare(true); }, crash(0)));
    // A worker below another program, or a peer that ends with the round.
    EXPECT_FALSE(replaced([this] { feed(WorkerAttached{0, true, false}); }, crash(0)));
    EXPECT_FALSE(replaced([this] { feed(WorkerAttached{1, false, true}); }, crash(0)));
    EXPECT_TRUE(replaced([] {}, crash(0)));
}

}  // namespace
}  // namespace regroup::agent
