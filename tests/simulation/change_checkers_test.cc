// SPDX-License-Identifier: Apache-2.0
//
// Checks that the checkers of steady rounds, hangs, standbys and boundaries detect violations.
#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/exit_code.h"
#include "tests/simulation/checker_samples.h"
#include "tests/simulation/simulation.h"

namespace regroup::simulation {
namespace {

using namespace rendezvous;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

class ChangeCheckersTest : public CheckerFixture {
   protected:
    void watch(std::unique_ptr<Checker> one) {
        checker = std::move(one);
        core = RendezvousCore(policy);
        checker->on_job(now, policy);
        checker->on_agent_start(now, 0);
        now += minutes(2);  // The start is long ago.
    }
    void form(std::uint64_t round, std::uint64_t step, const std::vector<MemberView>& members) {
        checker->on_group_formed(now, {round, RoundId{round}}, step, members);
    }
    void join(const std::string& node) {
        Offer offer;
        offer.name = node;
        daemon_hears(NodeJoined{node, policy, offer, {}});
    }
    void look() {
        View view;
        view.rendezvous = &core;
        view.daemon_awake_since = kStart;
        view.step_limit = seconds(2);
        view.hang_limit = seconds(5);
        view.hosts.resize(1);
        view.hosts[0].agent = &idle;
        view.hosts[0].node = "a";
        view.hosts[0].undisturbed_since = view.hosts[0].awake_since = kStart;
        checker->on_tick(now, view);
    }
};

TEST_F(ChangeCheckersTest, RoundCommitsStepsWhileTheDaemonIsAway) {
    for (const bool trouble : {true, false}) {
        watch(make_steady_checker());
        form(1, 0, {{0, 11, 0}, {1, 12, 0}});
        checker->on_daemon_gone(now);
        now += seconds(5);
        look();
        checker->on_commit(now, 0, 11, {1, RoundId{1}}, 1);
        now += seconds(5);
        look();
        EXPECT_EQ(violation(), "");
        if (trouble) {
            checker->on_trouble(now, now);
        }
        now += seconds(2);
        look();
        EXPECT_EQ(violation(), trouble ? ""
                                       : "round 1 has committed no step for 7.0 s, the daemon "
                                         "being away, and nothing was wrong with it");
    }
}

TEST_F(ChangeCheckersTest, TrainingWorkerIsNotInterruptedWithoutAFault) {
    for (const bool hung : {true, false}) {
        watch(make_steady_checker());
        form(1, 0, {{0, 11, 0}, {1, 12, 0}});
        if (hung) {
            checker->on_hung(now, {0, 0, 11, 0, RoundId{1}});
        }
        checker->on_process_end(now, 0, 11, false);
        EXPECT_EQ(violation().empty(), hung) << violation();
    }
    watch(make_steady_checker());
    form(1, 0, {{0, 11, 0}, {1, 12, 0}});
    checker->on_aborted(now, 0, 12, RoundId{1}, true);
    EXPECT_THAT(violation(), HasSubstr("was told to abandon it, and nothing was wrong"));
}

TEST_F(ChangeCheckersTest, RoundWithBrokenConnectionsWaitsForTheDaemon) {
    watch(make_steady_checker());
    checker->on_group_formed(now, {1, RoundId{1}}, 0, {{0, 11, 0}, {1, 12, 0}});
    checker->on_severed(now, {{1, RoundId{1}}, {11, 12}, 0, 1, now});
    checker->on_daemon_gone(now);
    now += minutes(10);
    look();
    EXPECT_EQ(violation(), "");
}

TEST_F(ChangeCheckersTest, WorkerAskedToEndDuringAFaultMayEndLater) {
    for (const bool in_trouble : {true, false}) {
        watch(make_steady_checker());
        agent::AgentCore leaving = agent_of(policy);
        static_cast<void>(leaving.step(now, agent::QuitRequested{SIGTERM}));
        checker->on_group_formed(now, {1, RoundId{1}}, 0, {{0, 11, 0}});
        if (in_trouble) {
            checker->on_trouble(now, now);
        }
        checker->on_agent_effect(now, 0, leaving, agent::SignalWorkers{RoundId{1}, SIGTERM});
        now += minutes(1);
        checker->on_process_end(now, 0, 11, false);
        EXPECT_EQ(violation(), in_trouble ? ""
                                          : "a worker of round 1 was asked to end, and nothing "
                                            "was wrong with the round");
    }
}

TEST_F(ChangeCheckersTest, FinishedOrSuspendedRoundNeedsNoFurtherSteps) {
    watch(make_steady_checker());
    form(1, 0, {{0, 11, 0}});
    checker->on_vote(now, {1, RoundId{1}}, true);
    form(2, 1, {{0, 12, 0}});
    checker->on_finished(now, {2, RoundId{2}});
    now += minutes(1);
    look();
    EXPECT_EQ(violation(), "");
}

TEST_F(ChangeCheckersTest, OnlyTheHangingWorkerIsEndedForAHang) {
    watch(make_hang_checker());
    checker->on_hung(now, {0, 1, 11, 5, RoundId{1}});
    checker->on_agent_effect(now, 0, idle, agent::KillWorker{1, "why"});
    EXPECT_EQ(violation(), "");
    checker->on_agent_effect(now, 0, idle, agent::KillWorker{0, "why"});
    EXPECT_EQ(violation(), "worker 0 of host 0 was ended for a hang that was not its own: why");
}

// The worker may, for example, have been stopped when the message came.
TEST_F(ChangeCheckersTest, AgentMayEndAHangingWorkerUntilItLearnsOfItsExit) {
    watch(make_hang_checker());
    checker->on_hung(now, {0, 1, 11, 5, RoundId{1}});
    checker->on_process_end(now, 0, 11, false);
    now += minutes(2);
    checker->on_agent_effect(now, 0, idle, agent::KillWorker{1, "why"});
    EXPECT_EQ(violation(), "");
    checker->on_agent_event(now, 0, agent::WorkerExited{RoundId{1}, 1, {}});
    checker->on_agent_effect(now, 0, idle, agent::KillWorker{1, "why"});
    EXPECT_EQ(violation(), "worker 1 of host 0 was ended for a hang that was not its own: why");
}

TEST_F(ChangeCheckersTest, WorkerOfAGroupThatCannotFormIsNotEnded) {
    agent::AgentCore running(agent_of(policy));
    Assignment assignment;
    assignment.round = RoundId{1};
    (void)running.step(now, agent::LinkUp{});
    (void)running.step(now, agent::Received{Assign{assignment}});
    for (const bool formed : {false, true}) {
        watch(make_hang_checker());
        checker->on_stuck(now, {1, RoundId{1}});
        if (formed) {
            form(1, 5, {{0, 11, 5}});  // Answers may come from before and after the group formed.
        }
        checker->on_agent_effect(now, 0, running, agent::KillWorker{0, "it is behind"});
        EXPECT_EQ(violation().empty(), formed) << violation();
    }
}

TEST_F(ChangeCheckersTest, HangEndsInTime) {
    for (const bool ends : {true, false}) {
        watch(make_hang_checker());
        checker->on_hung(now, {0, 1, 11, 5, RoundId{1}});
        now += minutes(1);
        look();
        EXPECT_EQ(violation(), "");
        if (ends) {
            checker->on_process_end(now, 0, 11, false);
        }
        now += minutes(5);
        look();
        EXPECT_EQ(violation(), ends ? "" : "rank 5 of round 1 has been hanging for 360 s");
    }
}

TEST_F(ChangeCheckersTest, StandbysHaveTheirWorkersStarted) {
    policy.standbys_max = 1;
    watch(make_standby_checker());
    join("b");
    NodeReport report;
    report.round = RoundId{1};
    report.state = NodeState::running;
    report.elastic = true;
    daemon_hears(NodeReported{"b", report});
    join("a");
    look();
    EXPECT_EQ(violation(), "");
    now += minutes(1);
    look();
    EXPECT_EQ(violation(), "of 1 standbys only 0 have their workers started, with 1 wanted");
}

TEST_F(ChangeCheckersTest, RemainingNodeKeepsItsGroupRankInAFullRound) {
    policy.nodes_min = policy.nodes_max = 2;
    watch(make_standby_checker());
    const auto place = [](std::uint64_t round, std::uint32_t group_rank) {
        Assign assign;
        assign.assignment.round = RoundId{round};
        assign.assignment.group_rank = group_rank;
        return assign;
    };
    join("a");
    join("b");
    ASSERT_EQ(core.round(), RoundId{1});
    daemon_hears(NodeLeft{"b", "why", true});
    daemon_hears(NodeReported{"a", {RoundId{1}, NodeState::stopped, 0, {}}});
    join("c");
    ASSERT_EQ(core.round(), RoundId{2});
    EXPECT_EQ(violation(), "");
    checker->on_daemon_effects(now, core, {{"a", place(3, 1)}, {"c", place(3, 0)}});
    EXPECT_THAT(violation(), HasSubstr("node a had group rank 0 and has 1"));
}

TEST_F(ChangeCheckersTest, RoundFormsAtOnceWithTheMaximumNumberOfNodes) {
    policy.nodes_min = 1;
    policy.nodes_max = 3;
    watch(make_standby_checker());
    join("a");
    join("b");
    ASSERT_EQ(core.phase(), Phase::forming);
    EXPECT_EQ(violation(), "");
    JobPolicy smaller = policy;
    smaller.nodes_max = 2;
    checker->on_job(now, smaller);
    checker->on_daemon_effects(now, core, {});
    EXPECT_THAT(violation(), HasSubstr("2 nodes are ready, of 2 at most, and no round is formed"));
}

TEST_F(ChangeCheckersTest, EveryRankKeepsItsStepAtAPlannedBoundary) {
    for (const std::uint64_t kept : {5U, 4U}) {
        watch(make_boundary_checker());
        form(1, 4, {{0, 11, 4}, {1, 12, 4}});
        checker->on_vote(now, {1, RoundId{1}}, true);
        form(2, 5, {{0, 11, kept}});
        EXPECT_EQ(violation().empty(), kept == 5) << violation();
    }
}

TEST_F(ChangeCheckersTest, DrainedNodeLeaves) {
    watch(make_boundary_checker());
    join("a");
    daemon_hears(DrainRequested{"a", "ops", "maintenance"});
    now += minutes(1);
    look();
    EXPECT_EQ(violation(), "");
    now += minutes(30);
    look();
    EXPECT_EQ(violation(), "node a was to be drained 1860 s ago and is still there");
}

TEST_F(ChangeCheckersTest, NodeToldToLeaveInOrderExitsForRequeue) {
    agent::AgentCore running(agent_of(policy));
    Assignment assignment;
    assignment.round = RoundId{1};
    (void)running.step(now, agent::LinkUp{});
    (void)running.step(now, agent::Received{Assign{assignment}});
    ASSERT_EQ(running.report().state, NodeState::running);
    for (const int code : {kExitRequeue, 1}) {
        watch(make_boundary_checker());
        const agent::PauseWorkers pause{RoundId{1}, true, minutes(1), {}};
        checker->on_agent_effect(now, 0, running, pause);
        checker->on_agent_effect(now, 0, running, agent::Quit{code, 0, {}});
        EXPECT_EQ(violation().empty(), code == kExitRequeue) << violation();
    }
}

}  // namespace
}  // namespace regroup::simulation
