// SPDX-License-Identifier: Apache-2.0
//
// Drains that end the job, and drains that first hand over the state.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

TEST_F(RendezvousPlanned, AllNodesSaveAndTheJobMayBeRequeuedIfTooFewRemain) {
    begin(policy_of(2, 3), {"a", "b"});
    leave("b");
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    EXPECT_EQ(job.times_told<Prepare>("b"), 1U);
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::changing);
    job.pass(seconds(2));  // The other node still saves, so it must not be told to stop.
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
    job.leave("a");
    EXPECT_EQ(job.verdict().outcome, Outcome::stopped);
    EXPECT_EQ(job.verdict().exit_code, kExitRequeue);
    EXPECT_EQ(job.verdict().author, "node b");
    EXPECT_EQ(job.verdict().reason,
              "node b leaves: stopped by SIGTERM; 1 node would be left of at least 2, so all save "
              "their state and leave");
}

TEST_F(RendezvousPlanned, LastNodeSavesItsStateAndTheJobMayBeRequeued) {
    begin(policy_of(1, 2), {"a"});
    leave("a");
    job.leave("a");
    EXPECT_EQ(job.verdict().exit_code, kExitRequeue);
    EXPECT_EQ(job.verdict().reason,
              "node a leaves: stopped by SIGTERM; no other node stays, so all save their state and "
              "leave");
}

TEST_F(RendezvousPlanned, AllNodesLeaveWithTheNodeThatHostsTheRendezvous) {
    job = Job(policy_of(1, 3));
    Offer host = Job::offer_of("a");
    host.hosts_rendezvous = true;
    job.join("a", host);
    job.join("b");
    job.pass(seconds(5));
    job.run_elastic({"a", "b"}, 10);
    job.clear();
    leave("b");
    EXPECT_FALSE(job.heard<Prepare>("a").leave);  // The other node may leave at once.
    leave("a");
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    job.leave("a");
    job.leave("b");
    EXPECT_EQ(job.verdict().exit_code, kExitRequeue);
    begin(policy_of(1, 3), {"c"});
    job.join("a", host);
    job.join("b");
    job.tell("a", Job::elastic_report(RoundId::none, NodeState::stopped));
    job.tell("b", Job::elastic_report(RoundId::none, NodeState::stopped));
    job.clear();
    leave("a");  // It only waits, but without it too few nodes remain.
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    EXPECT_TRUE(job.heard<Prepare>("c").leave);
    EXPECT_EQ(job.heard<Prepare>("c").reason,
              "node a leaves: stopped by SIGTERM; the daemon goes with it, so all save their "
              "state and leave");
}

TEST_F(RendezvousPlanned, DrainOnTheLastStepFindsTheJobFinished) {
    begin(policy_of(2, 3), {"a", "b"});
    leave("b");
    for (const char* node : {"a", "b"}) {
        NodeReport report = Job::elastic_report(RoundId{1}, NodeState::finished, 12);
        report.draining = "stopped by SIGTERM";
        job.tell(node, report);
    }
    EXPECT_EQ(job.verdict().exit_code, 0);
}

// ---- The only node with the state hands it over first.

TEST_F(RendezvousPlanned, OnlyNodeWithTheStateLeavesOnceOthersHaveIt) {
    begin(policy_of(1, 3), {"a"});
    job.join_all({"b", "c"});
    job.clear();
    leave("a");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    NodeReport suspended = Job::elastic_report(RoundId{1}, NodeState::stopped, 12);
    suspended.draining = "stopped by SIGTERM";
    job.tell("a", suspended);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 3U);
    NodeReport trains = Job::elastic_report(RoundId{2}, NodeState::running, 12);
    trains.draining = suspended.draining;
    job.run_elastic({"b", "c"}, 12);
    job.clear();
    job.tell("a", trains);
    EXPECT_EQ(job.told<Prepare>("a"), nullptr);
    job.resumed("a", 13);
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    EXPECT_FALSE(job.heard<Prepare>("b").leave);
    job.leave("a");
    job.suspend({"b", "c"}, 14);
    EXPECT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(job.assignment("b").group_world_size, 2U);
}

// Steps may take longer than --prepare-timeout: the members are suspended where they are.
TEST_F(RendezvousPlanned, NodesLeaveEvenIfTheBoundaryIsNotReachedInTime) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.drain("a");
    job.drain("b");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.pass(job.core.policy().prepare_timeout);
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.clear();
    job.suspend({"a", "b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.told<Assign>("a"), nullptr);
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    // The other one hands its state over to the standby first.
    EXPECT_EQ(job.assignment("b").group_world_size, 2U);
    job.run_elastic({"b", "c"}, 10);
    job.clear();
    job.resumed("b", 11);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_FALSE(job.heard<Prepare>("c").leave);
}

TEST_F(RendezvousPlanned, AllNodesSaveInTheNextRoundIfTooFewRemainWhileOneStops) {
    begin(policy_of(2, 2), {"a", "b"});
    NodeReport failed = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    failed.failure = crash_on("b");
    job.tell("b", failed);
    ASSERT_EQ(job.core.phase(), Phase::ending);
    leave("a");
    NodeReport a = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    a.draining = "stopped by SIGTERM";
    job.tell("a", a);
    ASSERT_EQ(job.core.round(), RoundId{2});
    a.round = RoundId{2};
    a.state = NodeState::running;
    job.tell("a", a);
    job.run_elastic({"b"}, 10);
    job.clear();
    job.resumed("a", 11);
    for (const char* node : {"a", "b"}) {
        EXPECT_TRUE(job.heard<Prepare>(node).leave);
        job.leave(node);
    }
    EXPECT_EQ(job.verdict().exit_code, kExitRequeue);
}

TEST_F(RendezvousPlanned, NodeKeptForARoundThatCannotFormMayLeave) {
    begin(policy_of(2, 2), {"a", "b"});
    job.fail("b", crash_on("b"));
    leave("a");
    job.disconnect("b");
    NodeReport a = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    a.draining = "stopped by SIGTERM";
    job.tell("a", a);
    job.clear();
    job.leave("b");
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
}

}  // namespace
}  // namespace regroup::rendezvous
