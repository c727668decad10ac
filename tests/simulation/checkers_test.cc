// SPDX-License-Identifier: Apache-2.0
//
// Checks that every checker detects a violation: each sees a view that violates its invariant, and
// one that does not.
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "tests/simulation/checker_samples.h"

namespace regroup::simulation {
namespace {

using namespace rendezvous;
using std::chrono::minutes;
using std::chrono::seconds;

JobPolicy policy_of(std::uint32_t nodes, std::uint32_t restarts = 0) {
    JobPolicy policy;
    policy.nodes_min = policy.nodes_max = nodes;
    policy.restarts_max = restarts;
    policy.shutdown_timeout = seconds(5);
    return policy;
}

NodeJoined joined(const std::string& node, const JobPolicy& policy, NodeReport report = {}) {
    Offer offer;
    offer.name = node;
    offer.address = "10.0.0.1";
    return {node, policy, offer, std::move(report)};
}

Assignment assignment(std::uint64_t round, std::uint32_t group_rank, std::uint32_t nodes) {
    Assignment result;
    result.round = RoundId{round};
    result.group_rank = result.first_rank = group_rank;
    result.group_world_size = result.world_size = nodes;
    result.reason = "test";
    return result;
}

// Two nodes in round 1, in the daemon's core and in the messages to each.
class CheckersTest : public CheckerFixture {
   protected:
    CheckersTest() : CheckerFixture(policy_of(2)) {}

    void watch(std::unique_ptr<Checker> one) {
        checker = std::move(one);
        checker->on_job(now, policy);
        checker->on_daemon_start(now);
        for (std::uint32_t host = 0; host < 2; ++host) {
            checker->on_agent_start(now, host);
        }
    }
    void form_round() {
        daemon_hears(joined("a", policy));
        daemon_hears(joined("b", policy));
        ASSERT_EQ(core.phase(), Phase::training);
    }
    void daemon_says(const NodeId& node, FromDaemon message) {
        checker->on_daemon_effects(now, core, {{node, std::move(message)}});
    }
    void agent_hears(FromDaemon message) {
        checker->on_agent_event(now, 0, agent::Received{std::move(message)});
    }
    void agent_does(const agent::AgentEffect& effect, std::uint32_t host = 0) {
        checker->on_agent_effect(now, host, idle, effect);
    }
    // The view of two hosts, of which the first has this agent.
    View view_of(const agent::AgentCore* agent) const {
        View view;
        view.rendezvous = &core;
        view.daemon_awake_since = kStart;
        view.hosts.resize(2);
        view.hosts[0].agent = agent;
        view.hosts[0].node = "a";
        view.hosts[0].undisturbed_since = view.hosts[0].awake_since = kStart;
        return view;
    }
};

TEST_F(CheckersTest, RanksMustBeDense) {
    watch(make_ranks_checker());
    form_round();
    EXPECT_EQ(violation(), "");
    checker->on_daemon_effects(
        now, core, {{"a", Assign{assignment(2, 0, 2)}}, {"b", Assign{assignment(2, 0, 2)}}});
    EXPECT_NE(violation(), "");
}

TEST_F(CheckersTest, MembersMustBeToldTheSameWorld) {
    watch(make_ranks_checker());
    form_round();
    Assignment other = assignment(2, 1, 2);
    other.master_port = 99;
    checker->on_daemon_effects(now, core,
                               {{"a", Assign{assignment(2, 0, 2)}}, {"b", Assign{other}}});
    EXPECT_EQ(violation(), "members of round 2 were told different worlds, masters or reasons");
}

TEST_F(CheckersTest, MemberMustNotGetADifferentAssignmentLater) {
    watch(make_ranks_checker());
    form_round();
    daemon_says("a", Assign{assignment(1, 1, 2)});
    EXPECT_EQ(violation(), "node a was given two different assignments for round 1");
}

TEST_F(CheckersTest, MessageMustBeDecodable) {
    watch(make_wire_checker());
    form_round();
    EXPECT_EQ(violation(), "");
    daemon_says("a", Assign{assignment((std::uint64_t{1} << 53U) + 1, 0, 1)});
    EXPECT_NE(violation(), "");
}

TEST_F(CheckersTest, OnlyJoinedNodesMayBeAssigned) {
    watch(make_ranks_checker());
    daemon_says("stranger", Assign{assignment(1, 0, 1)});
    EXPECT_EQ(violation(), "node stranger was assigned round 1 but never joined");
}

TEST_F(CheckersTest, RoundNumberMustNotBeReusedAcrossDaemonRestarts) {
    watch(make_ranks_checker());
    form_round();
    agent_does(agent::BeginRound{assignment(1, 0, 2)}, 0);
    agent_does(agent::BeginRound{assignment(1, 1, 3)}, 1);
    EXPECT_EQ(violation(), "host 1 launched round 1 with another assignment than others");
}

TEST_F(CheckersTest, DaemonMustNotRepeatRoundsThatNodesReported) {
    watch(make_round_order_checker());
    form_round();
    EXPECT_EQ(violation(), "");
    checker->on_daemon_start(now);
    checker->on_daemon_event(now, joined("a", policy, {RoundId{9}, NodeState::stopped, 0, {}}));
    checker->on_daemon_effects(now, RendezvousCore(policy), {});
    checker->on_daemon_effects(now, core, {});
    EXPECT_EQ(violation(), "round 1 was formed although a node had reported 9");
}

TEST_F(CheckersTest, DaemonIgnoresTheReportOfARefusedNode) {
    watch(make_round_order_checker());
    const NodeJoined refused = joined("c", policy, {RoundId{9}, NodeState::stopped, 0, {}});
    checker->on_daemon_event(now, refused);
    checker->on_daemon_effects(now, RendezvousCore(policy), {{"c", Refused{}}});
    form_round();
    EXPECT_EQ(violation(), "");
}

TEST_F(CheckersTest, DaemonMustNotReturnToAnEarlierRound) {
    watch(make_round_order_checker());
    form_round();
    checker->on_daemon_effects(now, RendezvousCore(policy), {});
    EXPECT_EQ(violation(), "the daemon went back from round 1 to 0");
}

TEST_F(CheckersTest, AgentsMustLaunchRisingRounds) {
    watch(make_round_order_checker());
    agent_does(agent::BeginRound{assignment(3, 0, 1)});
    agent_does(agent::BeginRound{assignment(3, 0, 1)});
    EXPECT_EQ(violation(), "host 0 launched round 3 after round 3");
}

TEST_F(CheckersTest, FencedAndStoppedRoundsMustNotBeLaunched) {
    for (const FromDaemon& word :
         {FromDaemon{Fenced{"lost"}}, FromDaemon{Stop{RoundId{3}, "why"}}}) {
        watch(make_fencing_checker());
        agent_hears(Assign{assignment(3, 0, 1)});
        agent_hears(word);
        agent_does(agent::BeginRound{assignment(4, 0, 1)});
        EXPECT_EQ(violation(), "");
        agent_does(agent::BeginRound{assignment(3, 0, 1)});
        EXPECT_NE(violation(), "");
    }
}

TEST_F(CheckersTest, WorkersOfTwoRoundsMustNotLiveOnOneHost) {
    watch(make_one_round_checker());
    checker->on_worker_start(now, 0, RoundId{1});
    checker->on_worker_start(now, 0, RoundId{1});
    checker->on_worker_start(now, 1, RoundId{2});
    checker->on_worker_end(now, 0, RoundId{1}, false);
    EXPECT_EQ(violation(), "");
    checker->on_worker_start(now, 0, RoundId{2});
    EXPECT_EQ(violation(), "host 0 launched round 2 while a worker of round 1 was alive");
}

TEST_F(CheckersTest, DaemonMustAnswerOnlyClosedForAClosedJob) {
    watch(make_closed_checker());
    form_round();
    daemon_hears(StopRequested{"ops", "enough"});
    daemon_hears(joined("late", policy));
    EXPECT_EQ(violation(), "");
    daemon_says("a", Alive{});
    EXPECT_EQ(violation(), "node a was sent another message than Closed for a closed job");
}

TEST_F(CheckersTest, ClosedJobMustNotChangeItsVerdict) {
    watch(make_closed_checker());
    form_round();
    daemon_hears(StopRequested{"ops", "enough"});
    RendezvousCore other(policy);
    checker->on_daemon_effects(now, other, other.step(now, StopRequested{"ops", "other reason"}));
    EXPECT_EQ(violation(), "the job was closed (enough) and is no longer");
}

TEST_F(CheckersTest, RestartIsChargedOnlyForAWorkerThatFailedByItself) {
    policy.restarts_max = 1;
    for (const bool own_fault : {true, false}) {
        watch(make_budget_checker());
        Assignment next = assignment(1, 0, 1);
        daemon_says("a", Assign{next});
        checker->on_worker_end(now, 0, RoundId{1}, own_fault);
        next.round = RoundId{2};
        next.restart_count = 1;
        daemon_says("a", Assign{next});
        EXPECT_EQ(violation().empty(), own_fault) << violation();
    }
}

TEST_F(CheckersTest, GroupThatCannotFormMayBeChargedToItsRoundOnly) {
    policy.restarts_max = 1;
    for (const std::uint64_t stuck : {1U, 2U}) {
        watch(make_budget_checker());
        Assignment next = assignment(1, 0, 1);
        daemon_says("a", Assign{next});
        checker->on_stuck(now, {0, RoundId{stuck}});
        next.round = RoundId{2};
        next.restart_count = 1;
        daemon_says("a", Assign{next});
        EXPECT_EQ(violation().empty(), stuck == 1) << violation();
    }
}

TEST_F(CheckersTest, RestartsMustNotExceedTheBudget) {
    watch(make_budget_checker());
    Assignment next = assignment(1, 0, 1);
    next.restart_count = 1;
    daemon_says("a", Assign{next});
    EXPECT_EQ(violation(), "round 1 counts 1 restarts after 0, with 0 allowed");
}

TEST_F(CheckersTest, JobMustNotFailBeforeItsBudgetIsUsed) {
    policy.restarts_max = 3;
    watch(make_budget_checker());
    RendezvousCore poor(policy_of(1, 0));
    checker->on_daemon_effects(now, poor, poor.step(now, joined("a", policy_of(1, 0))));
    checker->on_worker_end(now, 0, RoundId{1}, true);
    NodeReport report{RoundId{1}, NodeState::stopped, 0, WorkerFailure{}};
    checker->on_daemon_effects(now, poor, poor.step(now, NodeReported{"a", report}));
    ASSERT_TRUE(poor.verdict().has_value());
    EXPECT_EQ(violation(), "the job failed after 0 of 3 restarts");
}

TEST_F(CheckersTest, AgentMustStopARoundThatIsOver) {
    watch(make_stale_round_checker());
    agent::AgentCore stale = agent_of(policy);
    (void)stale.step(now, agent::LinkUp{});
    (void)stale.step(now, agent::Received{Assign{assignment(7, 1, 2)}});
    checker->on_tick(now, view_of(&stale));
    now += seconds(8);
    checker->on_tick(now, view_of(&stale));
    EXPECT_EQ(violation(), "");
    now += seconds(4);
    checker->on_tick(now, view_of(&stale));
    EXPECT_EQ(violation(), "node a has been running round 7, which is over, for 12 s");
}

// With the default heartbeat the limit is 63 s in a lossy network, 39 s with delays of 5 s, and
// otherwise 9 s.
TEST_F(CheckersTest, StaleRoundLimitAllowsForTheEarlierWorseNetwork) {
    agent::AgentCore stale = agent_of(policy);
    (void)stale.step(now, agent::LinkUp{});
    (void)stale.step(now, agent::Received{Assign{assignment(7, 1, 2)}});
    struct Case {
        bool loses;     // If false, the network is slow.
        seconds begun;  // Time before the network became better,
        seconds goes;   // and time that the stale round may then still take.
    };
    for (const auto& [loses, begun, goes] :
         {Case{true, seconds(12), seconds(9)}, Case{true, seconds(60), seconds(3)},
          Case{false, seconds(12), seconds(9)}, Case{false, seconds(30), seconds(9)},
          Case{false, seconds(36), seconds(3)}}) {
        watch(make_stale_round_checker());
        View view = view_of(&stale);
        view.hosts[0].undisturbed_since = now;
        view.reliable = !loses;
        view.network_limit = loses ? seconds(0) : seconds(5);
        checker->on_tick(now, view);
        now += begun;
        checker->on_tick(now, view);
        view.reliable = true;
        view.network_limit = seconds(0);
        checker->on_tick(now, view);
        now += goes;
        checker->on_tick(now, view);
        EXPECT_EQ(violation(), "") << loses << ' ' << begun.count();
        now += seconds(1);
        checker->on_tick(now, view);
        EXPECT_NE(violation(), "") << loses << ' ' << begun.count();
    }
}

TEST_F(CheckersTest, AgentMustNotQuitWithLivingWorkersUnlessTheyAreUnkillable) {
    agent::AgentCore busy = agent_of(policy);
    (void)busy.step(now, agent::Received{Assign{assignment(1, 1, 2)}});
    watch(make_orphan_checker());
    checker->on_agent_effect(now, 0, busy,
                             agent::Quit{1, 0, {agent::QuitCause::workers_unkillable}});
    EXPECT_EQ(violation(), "");
    checker->on_agent_effect(now, 0, busy, agent::Quit{1, 0, {}});
    EXPECT_EQ(violation(), "the agent on host 0 quit with living workers");
}

TEST_F(CheckersTest, WorkersMustNotOutliveTheirAgent) {
    watch(make_orphan_checker());
    View view = view_of(nullptr);
    view.hosts[0].workers_alive = 1;
    for (int tick = 0; tick < 6; ++tick) {
        checker->on_tick(now, view);
    }
    EXPECT_EQ(violation(), "workers on host 0 have outlived their agent");
}

TEST_F(CheckersTest, UnfinishedWorkersMustBeKilledAfterTheShutdownTimeout) {
    watch(make_force_checker());
    agent::AgentCore busy = agent_of(policy);
    (void)busy.step(now, agent::Received{Assign{assignment(1, 1, 2)}});
    (void)busy.step(now, agent::Received{Stop{RoundId{1}, "why"}});
    agent_does(agent::SignalWorkers{RoundId{1}, SIGTERM});
    now += seconds(5);
    checker->on_tick(now, view_of(&busy));
    EXPECT_EQ(violation(), "");
    now += seconds(1);
    checker->on_tick(now, view_of(&busy));
    EXPECT_EQ(violation(),
              "workers on node a were asked to stop 6.0 s ago and have not been killed");
}

TEST_F(CheckersTest, WorkerEndedByItsAgentMustNotBeReportedAsAFailure) {
    watch(make_first_failure_checker());
    WorkerFailure echo;
    echo.signal = SIGTERM;
    agent_does(agent::BeginRound{assignment(1, 0, 1)});
    agent_does(agent::SignalWorkers{RoundId{1}, false});
    checker->on_agent_event(now, 0, agent::WorkerExited{RoundId{1}, 0, echo});
    agent_does(agent::SendToDaemon{Report{{RoundId{1}, NodeState::stopped, 0, {}}}});
    EXPECT_EQ(violation(), "");
    agent_does(agent::SendToDaemon{Report{{RoundId{1}, NodeState::stopped, 0, echo}}});
    EXPECT_NE(violation(), "");
}

TEST_F(CheckersTest, FailureMustNotBeReportedForAnotherRound) {
    watch(make_first_failure_checker());
    WorkerFailure failure;
    failure.exit_code = 1;
    agent_does(agent::BeginRound{assignment(1, 0, 1)});
    checker->on_agent_event(now, 0, agent::WorkerExited{RoundId{1}, 0, failure});
    agent_does(agent::SendToDaemon{Report{{RoundId{2}, NodeState::stopped, 0, failure}}});
    EXPECT_EQ(violation(), "host 0 reports a failure of round 1 as one of round 2");
}

TEST_F(CheckersTest, AnnouncedMasterPortMustBeServed) {
    watch(make_master_checker());
    checker->on_agent_event(now, 0, agent::StoreOffered{2000});
    Assignment first = assignment(1, 0, 1);
    first.master_port = 2000;
    agent_does(agent::BeginRound{first});
    EXPECT_EQ(violation(), "");
    checker->on_agent_event(now, 0, agent::StoreOffered{2001});
    agent_does(agent::BeginRound{first});
    EXPECT_EQ(violation(), "host 0 serves the store on port 2001, but the assignment says 2000");
}

TEST_F(CheckersTest, DaemonMustForgetLostNodes) {
    watch(make_memory_checker());
    form_round();  // Both nodes are heard now and never again, and the core's time does not
                   // advance.
    now += seconds(1);
    checker->on_tick(now, view_of(nullptr));
    EXPECT_EQ(violation(), "");
    now += seconds(60);
    checker->on_tick(now, view_of(nullptr));
    EXPECT_EQ(violation(), "the daemon remembers 2 nodes, but only 0 were heard lately");
}

TEST_F(CheckersTest, DaemonMustForgetLostNodesUnlessItRestartsOften) {
    for (const Duration life : {seconds(3), seconds(10)}) {
        watch(make_memory_checker());
        form_round();
        View view = view_of(nullptr);
        for (int i = 0; i < 12; ++i) {
            view.daemon_awake_since = now;
            checker->on_tick(now, view);
            now += life;
            checker->on_tick(now, view);
        }
        EXPECT_EQ(violation().empty(), life == seconds(3));
    }
}

TEST_F(CheckersTest, NetworkMustNotFillUp) {
    watch(make_memory_checker());
    now += seconds(60);
    View view = view_of(nullptr);
    view.in_flight = 50'000;
    checker->on_tick(now, view);
    EXPECT_EQ(violation(), "50000 messages are in the network");
}

TEST_F(CheckersTest, DaemonMustNotHandleEventsWithoutEnd) {
    watch(make_storm_checker());
    for (int i = 0; i < 20'001; ++i) {
        checker->on_daemon_event(now, NodeDisconnected{"a"});
    }
    EXPECT_NE(violation(), "");
}

TEST_F(CheckersTest, JobMustRunOnceFaultsHaveStopped) {
    watch(make_progress_checker());
    checker->on_calm(now, view_of(&idle));  // One node is alive, and nothing runs.
    EXPECT_NE(violation(), "");
    watch(make_progress_checker());
    checker->on_calm(now, View{});
    EXPECT_EQ(violation(), "no daemon runs, or no node has joined it");
}

TEST_F(CheckersTest, ClosedJobMustHaveNoAgentsLeft) {
    watch(make_progress_checker());
    daemon_hears(StopRequested{"ops", "enough"});
    checker->on_calm(now, view_of(nullptr));
    EXPECT_EQ(violation(), "");
    now += minutes(1);
    checker->on_calm(now, view_of(&idle));
    EXPECT_EQ(violation(), "the job is closed but 1 agents have not ended");
}

}  // namespace
}  // namespace regroup::simulation
