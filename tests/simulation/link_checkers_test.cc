// SPDX-License-Identifier: Apache-2.0
//
// Checks that the checker of broken connections detects violations.
#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simulation/checker_samples.h"

namespace regroup::simulation {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

JobPolicy pair_policy() {
    JobPolicy policy;
    policy.nodes_min = policy.nodes_max = 2;
    policy.restarts_max = 3;
    policy.shutdown_timeout = seconds(5);
    return policy;
}

// Two nodes of one worker each, in round 1, long after the start. The processes are 11 and 12.
class LinkCheckersTest : public CheckerFixture {
   protected:
    LinkCheckersTest() : CheckerFixture(pair_policy()) {}

    void SetUp() override {
        checker = make_link_checker();
        checker->on_job(now, policy);
        for (const char* name : {"a", "b"}) {
            Offer offer;
            offer.name = name;
            offer.address = "10.0.0.1";
            daemon_hears(NodeJoined{name, policy, offer, {}});
        }
        report(1, NodeState::running);
        now += minutes(2);
        report(1, NodeState::running);
    }
    static NodeReport report_of(std::uint64_t round, NodeState state) {
        NodeReport report;
        report.round = RoundId{round};
        report.state = state;
        report.elastic = true;
        report.step = report.held_step = 3;
        return report;
    }
    void report(std::uint64_t round, NodeState state, const std::vector<BrokenLink>& links = {}) {
        for (const char* name : {"a", "b"}) {
            NodeReport said = report_of(round, state);
            if (name[0] == 'a') {
                said.broken_links = links;
            }
            daemon_hears(NodeReported{name, said});
        }
    }
    void sever(std::uint64_t round = 1) {
        checker->on_severed(now, {{round, RoundId{round}}, {11, 12}, 0, 1, now});
    }
    void look() {
        View view;
        view.rendezvous = &core;
        view.daemon_awake_since = kStart;
        view.hosts.resize(2);
        checker->on_tick(now, view);
    }
    void pass(Duration time) {
        now += time;
        checker->on_daemon_effects(now, core, core.advance(now));
    }
    // Breaks the connection. The daemon learns of it, ends the round and begins the next one.
    void sever_and_go_on(std::uint64_t round) {
        report(round, NodeState::running);
        sever(round);
        report(round, NodeState::running, {{0, 1, "closed the connection"}});
        pass(policy.regroup_window);
        ASSERT_EQ(core.phase(), Phase::ending);
        report(round, NodeState::stopped);
        for (int i = 0; i < 400 && core.phase() != Phase::training; ++i) {
            report(round, NodeState::stopped);
            pass(milliseconds(100));
        }
        ASSERT_EQ(core.phase(), Phase::training);
    }
};

TEST_F(LinkCheckersTest, BrokenConnectionEndsTheRoundInTime) {
    sever();
    now += seconds(1);
    look();
    EXPECT_EQ(violation(), "");
    now += seconds(1);
    look();
    EXPECT_EQ(violation(),
              "the connection between ranks 0 and 1 of round 1 broke 2.0 s ago, and the round goes "
              "on");
}

TEST_F(LinkCheckersTest, LimitDoesNotApplyDuringOtherFaults) {
    sever();
    checker->on_trouble(now, now);
    now += seconds(10);
    look();
    EXPECT_EQ(violation(), "");
}

TEST_F(LinkCheckersTest, RepeatedBreaksLengthenTheBackOffAndNeverEndTheJob) {
    for (std::uint64_t round = 1; round <= 12; ++round) {
        sever_and_go_on(round);
        look();
    }
    EXPECT_EQ(violation(), "");
}

// A break that is noticed late ends a round that has lasted long enough.
TEST_F(LinkCheckersTest, RoundLengthIsMeasuredToItsEndNotToTheBreak) {
    for (std::uint64_t round = 1; round <= 6; ++round) {
        sever_and_go_on(round);
    }
    for (int second = 1; second <= 11; ++second) {
        pass(seconds(1));
        report(7, NodeState::running);
        if (second == 8) {
            sever(7);
        }
    }
    report(7, NodeState::running, {{0, 1, "closed the connection"}});
    pass(policy.regroup_window);
    report(7, NodeState::stopped);
    EXPECT_EQ(core.round(), RoundId{8}) << "at once";
    EXPECT_EQ(violation(), "");
}

TEST_F(LinkCheckersTest, BrokenConnectionIsFollowedByANewRound) {
    sever();
    report(1, NodeState::running, {{0, 1, "closed the connection"}});
    pass(policy.regroup_window);
    report(1, NodeState::stopping);
    ASSERT_EQ(core.phase(), Phase::ending);
    now += seconds(30);
    look();
    EXPECT_EQ(violation(), "");
    now += seconds(20);
    look();
    EXPECT_THAT(violation(), HasSubstr("broke 50 s ago, and there is no other round"));
}

TEST_F(LinkCheckersTest, BrokenConnectionIsNotCharged) {
    sever();
    NodeReport failed;
    failed.round = RoundId{1};
    failed.state = NodeState::stopped;
    failed.failure = WorkerFailure{};
    failed.failure->node = "a";
    failed.failure->exit_code = 1;
    static_cast<void>(core.step(now, NodeReported{"a", failed}));
    report(1, NodeState::stopped);
    ASSERT_EQ(core.round(), RoundId{2});
    EXPECT_EQ(violation(),
              "the connection between ranks 0 and 1 of round 1 broke, and that was charged as a "
              "restart");
}

TEST_F(LinkCheckersTest, BrokenConnectionIsGivenAsTheCause) {
    sever();
    checker->on_daemon_effects(now, core, {{"a", Stop{RoundId{1}, "node b gave the round up"}}});
    EXPECT_EQ(violation(),
              "the connection between ranks 0 and 1 of round 1 broke, and node a was told that it "
              "ends because node b gave the round up");
}

TEST_F(LinkCheckersTest, BrokenConnectionDoesNotCloseTheJob) {
    sever();
    checker->on_daemon_effects(now, core, core.step(now, StopRequested{"operator", "enough"}));
    EXPECT_THAT(violation(), HasSubstr("broke, and the job was closed: enough"));
}

TEST_F(LinkCheckersTest, BrokenConnectionCostsNoWorkerItsProcess) {
    sever();
    agent::SignalWorkers kill;
    kill.signal = SIGKILL;
    now += seconds(6);  // The worker was asked to suspend, and did not within the shutdown timeout.
    checker->on_agent_effect(now, 0, idle, kill);
    checker->on_process_end(now, 0, 11, false);
    EXPECT_EQ(violation(), "");
    checker->on_process_end(now, 1, 12, false);
    EXPECT_EQ(violation(),
              "the connection between ranks 0 and 1 of round 1 broke, and a worker of host 1 lost "
              "its process for it");
}

TEST_F(LinkCheckersTest, RoundsThatBreakAtOnceAreSeparatedByTheBackOff) {
    JobPolicy patient = policy;
    patient.budgets.delay = seconds(20);
    checker->on_job(now, patient);
    report(1, NodeState::running);
    now += minutes(2);
    sever_and_go_on(1);  // This round has lasted.
    sever_and_go_on(2);
    EXPECT_EQ(violation(), "") << "the first restart is at once";
    sever_and_go_on(3);
    EXPECT_THAT(violation(), HasSubstr("in 2 rounds in a row without progress, and the next one"));
}

}  // namespace
}  // namespace regroup::simulation
