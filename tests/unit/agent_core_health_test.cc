// SPDX-License-Identifier: Apache-2.0
//
// A node whose health is checked: before it joins, and after a failure of a worker.
#include "agent/text/cause_text.h"
#include "agent_core_elastic_fixture.h"

namespace regroup::agent {
namespace {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

class AgentCoreHealthTest : public AgentCoreTest {
   protected:
    AgentCoreHealthTest() {
        AgentConfig config = config_of_two_workers();
        config.health_limit = std::chrono::seconds(10);
        restart(config);
        effects.clear();
    }
    void both_fail(std::uint64_t round) {
        exits(round, 0, crash(0));
        exits(round, 1, crash(1, SIGTERM));
    }
    void expect_that_it_left_for(const std::string& fault) {
        expect_quit(kExitUnhealthy, QuitCause::unhealthy);
        ASSERT_EQ(all<SendLeave>().size(), 1U);
        EXPECT_EQ(text_of(all<SendLeave>()[0].reason), "this node is not healthy: " + fault);
    }
    [[nodiscard]] NodeState last_state() const { return sent<Report>().back().report.state; }
};

TEST_F(AgentCoreHealthTest, FailureIsReportedAtOnceAndTheNodeIsReadyAfterTheCheck) {
    in_round(1);
    both_fail(1);
    EXPECT_EQ(all<CheckNode>().size(), 1U);
    ASSERT_FALSE(sent<Report>().empty());
    EXPECT_EQ(last_state(), NodeState::stopping);
    EXPECT_TRUE(sent<Report>().back().report.failure.has_value());
    effects.clear();
    feed(NodeChecked{});
    ASSERT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(last_state(), NodeState::stopped);
    assign(2);
    EXPECT_TRUE(launched(2));
}

TEST_F(AgentCoreHealthTest, NodeWithAFaultLeavesAfterAFailure) {
    in_round(1);
    both_fail(1);
    feed(NodeChecked{"GPU 1 is lost"});
    expect_that_it_left_for("GPU 1 is lost");
    EXPECT_TRUE(core.done());
}

TEST_F(AgentCoreHealthTest, WorkersThatAreLeftAreEndedBeforeAFaultyNodeIsGone) {
    in_round(1);
    exits(1, 0, crash(0));
    feed(NodeChecked{"GPU 1 is lost"});
    EXPECT_FALSE(quit().has_value());
    EXPECT_TRUE(core.leaving());
    exits(1, 1, crash(1, SIGTERM));
    expect_that_it_left_for("GPU 1 is lost");
}

TEST_F(AgentCoreHealthTest, AssignmentThatComesBeforeTheResultBeginsAfterIt) {
    in_round(1);
    both_fail(1);
    effects.clear();
    assign(2);
    EXPECT_FALSE(launched(2));
    feed(NodeChecked{});
    EXPECT_TRUE(launched(2));
}

TEST_F(AgentCoreHealthTest, FencedNodeJoinsAgainOnlyAfterTheResult) {
    in_round(1);
    both_fail(1);
    effects.clear();
    hear(Fenced{});
    EXPECT_TRUE(sent<Join>().empty());
    feed(NodeChecked{});
    EXPECT_EQ(one(sent<Join>()).report.state, NodeState::stopped);
}

TEST_F(AgentCoreHealthTest, OnlyOneCheckIsMadeForAllFailuresOfARound) {
    in_round(1);
    both_fail(1);
    feed(NodeChecked{});
    assign(2);
    both_fail(2);
    EXPECT_EQ(all<CheckNode>().size(), 2U);
}

TEST_F(AgentCoreHealthTest, PlannedStopNeedsNoCheck) {
    in_round(1);
    hear(Stop{RoundId{1}, "a peer is lost"});
    both_obey(1);
    EXPECT_TRUE(all<CheckNode>().empty());
    EXPECT_EQ(last_state(), NodeState::stopped);
}

TEST_F(AgentCoreHealthTest, NodeThatIsToldToQuitDoesNotWaitForTheResult) {
    in_round(1);
    exits(1, 0, crash(0));
    gets_signal(SIGTERM);
    exits(1, 1, crash(1, SIGTERM));
    ASSERT_TRUE(quit().has_value());
    EXPECT_EQ(quit()->reason.cause, QuitCause::asked);
    effects.clear();
    feed(NodeChecked{"GPU 1 is lost"});
    EXPECT_TRUE(effects.empty());
}

TEST_F(AgentCoreHealthTest, VerdictEndsTheNodeWhileItsHealthIsChecked) {
    in_round(1);
    both_fail(1);
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.exit_code = 7;
    hear(Closed{verdict});
    expect_quit(7, QuitCause::job_closed);
}

TEST_F(AgentCoreHealthTest, WithoutChecksAFailureIsReportedOnceWhenTheNodeIsReady) {
    restart();
    in_round(1);
    exits(1, 1);
    exits(1, 0, crash(0));
    EXPECT_TRUE(all<CheckNode>().empty());
    EXPECT_EQ(sent<Report>().size(), 1U);
    EXPECT_EQ(last_state(), NodeState::stopped);
}

// A node that has not connected yet.
class AgentCorePreflightTest : public AgentCoreHealthTest {
   protected:
    AgentCorePreflightTest() {
        core = AgentCore(config_of_two_workers(), now);
        feed(StoreOffered{kPort});
        effects.clear();
    }
};

TEST_F(AgentCorePreflightTest, FaultyNodeJoinsOnlyToLeave) {
    feed(NodeChecked{"GPU 1 is lost"});
    EXPECT_FALSE(core.leaving());
    feed(LinkUp{});
    ASSERT_EQ(sent<Join>().size(), 1U);
    // The daemon forms no round with a node that wants to leave.
    EXPECT_EQ(sent<Join>()[0].report.draining, "GPU 1 is lost");
    expect_that_it_left_for("GPU 1 is lost");
}

TEST_F(AgentCorePreflightTest, FaultyNodeEndsSoonWithoutADaemon) {
    feed(NodeChecked{"GPU 1 is lost"});
    pass(milliseconds(900));
    EXPECT_FALSE(quit().has_value());
    pass(milliseconds(200));
    expect_quit(kExitUnhealthy, QuitCause::unhealthy);
    EXPECT_EQ(text_of(quit()->reason), "this node is not healthy: GPU 1 is lost");
}

TEST_F(AgentCorePreflightTest, HealthyNodeJoinsAsUsual) {
    feed(NodeChecked{});
    feed(LinkUp{});
    EXPECT_EQ(one(sent<Join>()).report.draining, "");
    EXPECT_FALSE(quit().has_value());
}

TEST_F(AgentCorePreflightTest, JoinTimeoutBeginsAfterTheCheckOrItsLimit) {
    AgentConfig config = config_of_two_workers();
    config.first_check_limit = std::chrono::minutes(1);
    for (const bool check_ends : {true, false}) {
        core = AgentCore(config, now);
        effects.clear();
        pass(check_ends ? seconds(59) : seconds(60));
        if (check_ends) {
            feed(NodeChecked{});
        }
        pass(config.join_timeout - seconds(1));
        EXPECT_FALSE(quit().has_value());
        pass(seconds(1));
        expect_quit(kExitNoRendezvous, QuitCause::no_rendezvous);
    }
}

// A node that waits for a place.
class AgentCoreStandbyHealthTest : public AgentCoreHealthTest {
   protected:
    AgentCoreStandbyHealthTest() {
        AgentConfig config = config_of_two_workers();
        config.health_limit = std::chrono::seconds(10);
        config.recheck_interval = std::chrono::seconds(30);
        restart(config);
        rendezvous::Waiting waiting;
        waiting.standby = true;
        hear(waiting);
        effects.clear();
    }
};

TEST_F(AgentCoreStandbyHealthTest, StandbyIsCheckedFromTimeToTime) {
    pass_answered(seconds(29));
    EXPECT_TRUE(all<CheckNode>().empty());
    pass_answered(seconds(2));
    EXPECT_TRUE(one(all<CheckNode>()).waits);
    pass_answered(seconds(30));
    EXPECT_EQ(all<CheckNode>().size(), 2U);
    EXPECT_FALSE(core.leaving());
}

TEST_F(AgentCoreStandbyHealthTest, StandbyWithAFaultLeaves) {
    feed(NodeChecked{"GPU 1 is lost"});
    expect_that_it_left_for("GPU 1 is lost");
}

TEST_F(AgentCoreStandbyHealthTest, StandbyThatHasAPlaceIsCheckedOnlyAfterFailures) {
    in_round(1);
    pass_answered(std::chrono::minutes(2));
    EXPECT_TRUE(all<CheckNode>().empty());
    both_fail(1);
    EXPECT_FALSE(one(all<CheckNode>()).waits);
}

class AgentCoreElasticHealthTest : public AgentCoreElasticTest {
   protected:
    void SetUp() override {
        AgentConfig config = config_of_two_workers();
        config.health_limit = std::chrono::seconds(10);
        restart(config);
        AgentCoreElasticTest::SetUp();
    }
};

TEST_F(AgentCoreElasticHealthTest, SurvivorWaitsForTheCheckOfItsNode) {
    exits(1, 0, crash(0));
    EXPECT_EQ(all<CheckNode>().size(), 1U);
    suspends_at(5, 1);
    EXPECT_TRUE(reported(NodeState::stopping));
    pass_answered(seconds(20));  // Longer than the grace period: no worker is left that could end.
    EXPECT_TRUE(all<SignalWorkers>().empty());
    feed(NodeChecked{});
    EXPECT_TRUE(reported(NodeState::stopped));
}

TEST_F(AgentCoreElasticHealthTest, DaemonHearsHowLongACheckMayTakeThatBeganLate) {
    hear(Stop{RoundId{1}, "another node is lost"});
    suspends(1, 0);
    feed(WorkersAtWork{RoundId{1}, seconds(100)});
    pass_answered(seconds(30));
    exits(1, 1, crash(1));  // It ended by itself, in user code.
    EXPECT_EQ(all<CheckNode>().size(), 1U);
    effects.clear();
    pass_answered(seconds(2));
    ASSERT_TRUE(reported(NodeState::stopping));
    EXPECT_GT(sent<Report>().back().report.at_work, seconds(5));
    EXPECT_LE(sent<Report>().back().report.at_work, seconds(10));
    feed(NodeChecked{});
    ASSERT_TRUE(reported(NodeState::stopped));
    EXPECT_EQ(sent<Report>().back().report.at_work, Duration::zero());
}

TEST_F(AgentCoreElasticHealthTest, NodeThatIsAskedToLeaveStillLeavesAfterTheCheck) {
    exits(1, 0, crash(0));
    suspends_at(5, 1);
    gets_signal(SIGTERM);
    feed(NodeChecked{});
    EXPECT_TRUE(reported(NodeState::stopped));
    hear(Prepare{RoundId{1}, true, "it wants to leave"});
    EXPECT_TRUE(last(all<PauseWorkers>()).leave);
}

}  // namespace
}  // namespace regroup::agent
