// SPDX-License-Identifier: Apache-2.0
//
// Proof that what is checked of overlapping generations of workers can fail.
#include <csignal>

#include <gtest/gtest.h>

#include "tests/simulation/checker.h"
#include "tests/simulation/checker_samples.h"

namespace regroup::simulation {
namespace {

using namespace rendezvous;
using std::chrono::seconds;

class OverlapCheckersTest : public testing::Test {
   protected:
    void watch(std::unique_ptr<Checker> one, const JobPolicy& policy = {}) {
        checker = std::move(one);
        checker->on_job(now, policy);
        checker->on_agent_start(now, 0);
    }
    void agent_does(const agent::AgentEffect& effect) {
        checker->on_agent_effect(now, 0, idle, effect);
    }
    void begins(std::uint64_t round) {
        Assignment assignment;
        assignment.round = RoundId{round};
        agent_does(agent::BeginRound{assignment});
        checker->on_worker_start(now, 0, RoundId{round});
    }
    void releases(std::uint64_t round, bool passed_on) {
        agent_does(agent::SignalWorkers{RoundId{round}, SIGTERM, false, {0}});
        agent_does(agent::ReleasePlaces{RoundId{round}, {0}, passed_on});
    }
    [[nodiscard]] std::string violation() const { return checker->violation().value_or(""); }

    Instant now = kStart;
    std::unique_ptr<Checker> checker;
    agent::AgentCore idle = agent_of({});
};

TEST_F(OverlapCheckersTest, ThePlaceOfWhoWasNotAskedToEndMustNotBeGivenAway) {
    watch(make_one_round_checker());
    begins(1);
    releases(1, true);
    begins(2);
    EXPECT_EQ(violation(), "");
    // What was asked of the last generation was not asked of this one.
    agent_does(agent::ReleasePlaces{RoundId{2}, {0}, true});
    EXPECT_EQ(violation(), "host 0 gave the place of worker 0 away, which it had not asked to end");
}

TEST_F(OverlapCheckersTest, WhoWaitsMustWaitForTheLast) {
    watch(make_one_round_checker());
    begins(1);
    releases(1, false);
    EXPECT_EQ(violation(), "");
    begins(2);
    EXPECT_EQ(violation(), "host 0 launched round 2 while a worker of round 1 was alive");
}

TEST_F(OverlapCheckersTest, NoMoreThanOneGenerationMustBeBehind) {
    watch(make_one_round_checker());
    begins(1);
    releases(1, true);
    begins(2);
    releases(2, true);
    EXPECT_EQ(violation(), "");
    begins(3);
    EXPECT_EQ(violation(), "host 0 launched round 3 while a worker of round 1 was alive");
}

TEST_F(OverlapCheckersTest, ALateEndMustNotBeBlamed) {
    watch(make_first_failure_checker());
    WorkerFailure late;
    late.signal = SIGSEGV;
    Assignment assignment;
    assignment.round = RoundId{1};
    agent_does(agent::BeginRound{assignment});
    agent_does(agent::LaunchWorkers{assignment, {0}});
    releases(1, true);
    checker->on_agent_event(now, 0, agent::WorkerExited{RoundId{1}, 0, late});
    agent_does(agent::SendToDaemon{Report{{RoundId{1}, NodeState::stopped, 0, {}}}});
    EXPECT_EQ(violation(), "");
    agent_does(agent::SendToDaemon{Report{{RoundId{1}, NodeState::stopped, 0, late}}});
    EXPECT_NE(violation(), "");
}

TEST_F(OverlapCheckersTest, ForceMustFollowAlsoForThoseWhoHoldUpNobody) {
    JobPolicy policy;
    policy.shutdown_timeout = seconds(5);
    watch(make_force_checker(), policy);
    agent::AgentConfig config;
    config.node = "a";
    config.policy = policy;
    config.overlap_restart = true;
    agent::AgentCore busy(config, now);
    Assignment assignment;
    assignment.round = RoundId{1};
    assignment.group_rank = 1;
    (void)busy.step(now, agent::Received{Assign{assignment}});
    (void)busy.step(now, agent::Received{Stop{RoundId{1}, "why"}});
    (void)busy.step(now, agent::RoomForSuccessors{RoundId{1}});
    ASSERT_TRUE(busy.has_outgoing());
    releases(1, true);
    View view;
    view.hosts.resize(1);
    view.hosts[0].agent = &busy;
    view.hosts[0].node = "a";
    view.hosts[0].awake_since = now;
    now += seconds(5);
    checker->on_tick(now, view);
    EXPECT_EQ(violation(), "");
    now += seconds(1);
    checker->on_tick(now, view);
    EXPECT_EQ(violation(),
              "workers on node a whose places were released 6.0 s ago have not been forced");
}

}  // namespace
}  // namespace regroup::simulation
