// SPDX-License-Identifier: Apache-2.0
//
// Nodes leave in order: their state is saved, and the last copy of it does not leave with them.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

// ---- Drains.

TEST_F(RendezvousPlanned, OthersContinueWhileALeavingNodeSavesItsState) {
    leave("b");
    EXPECT_EQ(job.core.phase(), Phase::changing);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    EXPECT_EQ(job.heard<Prepare>("a").reason, "node b leaves: stopped by SIGTERM");
    job.suspend({"a"}, 12);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 1U);
    EXPECT_EQ(job.told<Stop>("b"), nullptr);
    // A node that saves must not get a Stop, which would end the saving.
    job.clear();
    job.pass(seconds(3));
    EXPECT_EQ(job.told<Stop>("b"), nullptr);
    EXPECT_EQ(job.told<Assign>("b"), nullptr);
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{2});
}

// Its peers told its workers of the boundary before the daemon told its agent that it leaves.
TEST_F(RendezvousPlanned, LeavingNodeThatReachesTheBoundaryUntoldSavesItsStateLate) {
    job.drain("b");
    job.suspend({"a"}, 12);
    job.run_elastic({"a"}, 15);
    job.clear();
    job.tell("b", Job::elastic_report(RoundId{1}, NodeState::stopped, 12));
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_FALSE(job.heard<Prepare>("b").stale);
}

// Such a round has no step boundary, and the node has no state to save.
TEST_F(RendezvousPlanned, NodeInAnOldNonElasticRoundIsStoppedBeforeItLeaves) {
    job = Job(fixed_policy(2));
    job.join_all({"a", "b"});
    job.report("a", NodeState::running);
    job.report("b", NodeState::running);
    job.killed("b");
    job.report("a", NodeState::stopped);
    ASSERT_EQ(job.core.phase(), Phase::forming);
    job.join("b", Job::offer_of("b"), {RoundId{1}, NodeState::running, 2000, {}});
    job.clear();
    job.drain("b");
    job.beat("b");
    EXPECT_EQ(job.told<Prepare>("b"), nullptr);
    EXPECT_EQ(job.heard<Stop>("b").reason, "round 1 is over");
    job.report("b", NodeState::stopped);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
}

TEST_F(RendezvousPlanned, DrainBeforeTheOthersAreBackDoesNotEndTheJob) {
    // As after a pause of the daemon, when all nodes reconnect.
    begin(policy_of(1, 3), {"a", "b", "c"});
    for (const std::string node : {"a", "b", "c"}) {
        job.disconnect(node);
    }
    leave("b");
    for (const std::string node : {"a", "c"}) {
        job.beat(node);
    }
    EXPECT_EQ(job.core.phase(), Phase::changing);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    EXPECT_FALSE(job.heard<Prepare>("c").leave);
    job.suspend({"a", "c"}, 12);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST_F(RendezvousPlanned, DrainedNodeSavesItsStateWhileTheOnlyOtherNodeIsBeingLost) {
    job.disconnect("a");
    job.silence("a");
    leave("b");
    job.pass(seconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    job.leave("b");
    EXPECT_NE(job.core.phase(), Phase::training);
}

TEST_F(RendezvousPlanned, NodeThatLeavesBeforeTheBoundaryIsReportedDoesNoHarm) {
    leave("b");
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::changing);
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
    job.suspend({"a"}, 12);
    EXPECT_EQ(job.core.round(), RoundId{2});
}

TEST_F(RendezvousPlanned, NodeThatDoesNotSuspendSoonAfterADepartureIsStopped) {
    leave("b");
    job.leave("b");
    job.pass(seconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
}

TEST_F(RendezvousPlanned, FailuresOfPeersOfALeavingNodeAreNotChargedEvenIfAnotherHadSuspended) {
    for (const char* word : {"leaves", "is away", "may be gone"}) {
        JobPolicy policy = policy_of(1, 3);
        policy.restarts_max = 5;
        begin(policy, {"a", "b", "c"});
        leave("b");
        job.suspend({"a"}, 12);
        ASSERT_EQ(job.core.phase(), Phase::changing);
        if (word == std::string("leaves")) {
            job.leave("b");
        } else if (word == std::string("is away")) {
            job.disconnect("b");
        }
        NodeReport failed = Job::elastic_report(RoundId{1}, NodeState::stopped, 11);
        failed.failure = crash_on("c");
        job.tell("c", failed);
        ASSERT_EQ(job.core.round(), RoundId{2});
        EXPECT_EQ(job.assignment("a").restart_count, 0U);
    }
}

TEST_F(RendezvousPlanned, LeavingNodeIsToldToLeaveWhileTheRoundStops) {
    begin(policy_of(3, 3), {"a", "b", "c"});
    leave("c");
    job.leave("c");
    NodeReport failed = Job::elastic_report(RoundId{1}, NodeState::stopped, 11);
    failed.failure = crash_on("b");
    job.tell("b", failed);
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.clear();
    job.beat("a");  // It has not heard of the drain.
    EXPECT_TRUE(job.heard<Prepare>("a").leave);
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
}

TEST_F(RendezvousPlanned, FailureBeforeTheBoundaryIsChargedAlthoughANodeLeaves) {
    JobPolicy policy = policy_of(1, 3);
    policy.restarts_max = 5;
    begin(policy, {"a", "b", "c"});
    leave("b");
    NodeReport failed = Job::elastic_report(RoundId{1}, NodeState::stopped, 11);
    failed.failure = crash_on("c");
    job.tell("c", failed);
    job.suspend({"a"}, 11);
    NodeReport b = Job::elastic_report(RoundId{1}, NodeState::stopped, 11);
    b.draining = "stopped by SIGTERM";
    job.tell("b", b);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousPlanned, OneStandbyKeepsTheJobRunning) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join("c");
    job.tell("c", Job::elastic_report(RoundId::none, NodeState::stopped));
    leave("b");
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    job.suspend({"a"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_rank, 1U);
}

TEST_F(RendezvousPlanned, OperatorDrainsANodeByName) {
    EXPECT_EQ(job.core.nodes_called("b"), 1U);
    EXPECT_EQ(job.core.nodes_called("nobody"), 0U);
    job.drain("nobody");
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_TRUE(job.log.empty());
    job.drain("b");
    EXPECT_EQ(job.core.phase(), Phase::changing);
    EXPECT_EQ(job.heard<Prepare>("a").reason, "node b is drained by ops: maintenance");
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_EQ(job.core.status(job.now).nodes[1].place, JobStatus::Membership::leaving);
}

TEST_F(RendezvousPlanned, DrainByNameIsForAllNodesOfTheNameAndByIdForOne) {
    const auto begin_with_two = [&] {
        job = Job(policy_of(1, 3));
        job.join("a");
        job.join("b1", Job::offer_of("b"));
        job.join("b2", Job::offer_of("b"));
        job.pass(seconds(5));
        job.run_elastic({"a", "b1", "b2"}, 10);
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.clear();
    };
    begin_with_two();
    EXPECT_EQ(job.core.nodes_called("b"), 2U);
    job.drain("b");
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    EXPECT_TRUE(job.heard<Prepare>("b1").leave);
    EXPECT_TRUE(job.heard<Prepare>("b2").leave);
    begin_with_two();
    EXPECT_EQ(job.core.nodes_called("b2"), 1U);
    job.drain("b2");
    EXPECT_FALSE(job.heard<Prepare>("b1").leave);
    EXPECT_TRUE(job.heard<Prepare>("b2").leave);
}

TEST_F(RendezvousPlanned, WaitingNodeIsDrainedAtOnce) {
    job.join("c");
    job.drain("c");
    EXPECT_TRUE(job.heard<Prepare>("c").leave);
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(seconds(40));
    EXPECT_EQ(job.core.round(), RoundId{1});  // A leaving node is not admitted.
}

TEST_F(RendezvousPlanned, NodeLostBeforeItLeavesIsStillDrainedWhenItComesBack) {
    job.drain("b");
    job.disconnect("b");
    job.silence("b");
    job.suspend({"a"}, 12);
    job.pass(seconds(1));
    ASSERT_EQ(job.core.nodes_called("b"), 0U);
    ASSERT_EQ(job.assignment("a").group_world_size, 1U);
    job.clear();
    job.join("b2", Job::offer_of("b"));
    EXPECT_EQ(job.told<Prepare>("b2"), nullptr) << "another agent on that machine";
    job.join("b");
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_EQ(job.heard<Prepare>("b").reason, "node b is drained by ops: maintenance");
    job.pass(seconds(40));
    EXPECT_EQ(job.told<Assign>("b"), nullptr);
}

TEST_F(RendezvousPlanned, DrainOfNonElasticWorkersStopsTheRound) {
    job.run({"a", "b"});
    job.drain("b");
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_TRUE(job.heard<Stop>("a").planned) << "they may agree on a step at which they stop";
    EXPECT_TRUE(job.heard<Stop>("b").planned);
    job.report("b", NodeState::stopped);
    job.report("a", NodeState::stopped);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 1U);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
}

TEST_F(RendezvousPlanned, StopIsNotPlannedAfterAFailure) {
    job.run({"a", "b"});
    job.fail("b", crash_on("b"));
    EXPECT_FALSE(job.heard<Stop>("a").planned);
}

TEST_F(RendezvousPlanned, FailureDuringAPlannedStopEndsItForThoseWhoHaveNotHeardOfIt) {
    job.run({"a", "b"});
    job.drain("b");
    job.fail("b", crash_on("b"));
    job.clear();
    job.beat("a");
    EXPECT_FALSE(job.heard<Stop>("a").planned);
}

// Its ranks were asked by somebody else, and all ranks stop.
TEST_F(RendezvousPlanned, RanksOfOtherNodesMaySaveWhenTheFirstHaveStopped) {
    JobPolicy policy = policy_of(1, 3);
    policy.restarts_max = 0;
    begin(policy, {"a", "b"});
    job.run({"a", "b"});
    WorkerFailure stopped = error_on("b");
    stopped.unfinished = true;
    stopped.kind = FailureKind::retry;
    job.fail("b", stopped);
    EXPECT_TRUE(job.heard<Stop>("a").planned);
    job.confirm_stopped({"a", "b"});
    EXPECT_EQ(job.core.round(), RoundId{2}) << "that is charged to nothing";
}

TEST_F(RendezvousPlanned, DrainBeforeTheFirstStepDoesNotCutTheRecoveryShort) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    job.leave("c");
    job.suspend({"a", "b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run_elastic({"a", "b"}, 10);
    job.clear();
    job.drain("b");
    EXPECT_EQ(job.core.phase(), Phase::training) << "it has committed no step yet";
    job.resumed("a", 11);
    EXPECT_FALSE(job.heard<Recovered>("a").incident.cut_short);
    EXPECT_EQ(job.heard<Recovered>("a").incident.next_round, RoundId{2});
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.suspend({"a"}, 11);
    ASSERT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(describe_detail(job.core.status(job.now).nodes[0]), "has not confirmed round 3 yet");
    job.run_elastic({"a"}, 11);
    EXPECT_EQ(describe_detail(job.core.status(job.now).nodes[0]), "");
    job.clear();
    job.resumed("a", 12);
    EXPECT_TRUE(job.heard<Recovered>("a").incident.planned);
    EXPECT_FALSE(job.heard<Recovered>("a").incident.cut_short);
    EXPECT_EQ(job.core.status(job.now).goodput.cut_short, 0U);
}

TEST_F(RendezvousPlanned, DrainSoonAfterGrowthIsASeparatePlannedChange) {
    job.join("c", Job::offer_of("c"), Job::elastic_report(RoundId::none, NodeState::stopped));
    job.pass(seconds(5));
    job.suspend({"a", "b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.drain("c");
    job.run_elastic({"a", "b", "c"}, 10);
    EXPECT_EQ(job.core.phase(), Phase::training) << "the growth is not complete yet";
    job.resumed("a", 11);
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.leave("c");
    job.suspend({"a", "b"}, 12);
    ASSERT_EQ(job.core.round(), RoundId{3});
    job.resumed("a", 13);
    const JobStatus status = job.core.status(job.now);
    ASSERT_EQ(status.incidents.size(), 2U);
    for (const Incident& incident : status.incidents) {
        EXPECT_TRUE(incident.planned);
        EXPECT_FALSE(incident.cut_short);
    }
    EXPECT_EQ(status.incidents[1].decision, "going on with 2 nodes");
}

// Others may be in user code for minutes.
TEST_F(RendezvousPlanned, LeavingNodeThatIsNotAwaitedIsToldAgainToLeave) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    job.drain("c");
    job.tell("a", Job::elastic_report(RoundId{1}, NodeState::stopped, 11));
    for (const bool stopping : {false, true}) {
        if (stopping) {
            NodeReport failed = Job::elastic_report(RoundId{1}, NodeState::stopping, 11);
            failed.failure = crash_on("b");
            job.tell("b", failed);
        }
        ASSERT_EQ(job.core.phase(), stopping ? Phase::ending : Phase::changing);
        job.clear();
        job.beat("c");
        EXPECT_TRUE(job.heard<Prepare>("c").leave);
    }
}

TEST_F(RendezvousPlanned, NodeWithAnOlderStateThanTheRoundSavesNothing) {
    begin(policy_of(1, 2), {"a", "b"});
    job.disconnect("b");
    job.silence("b");
    job.suspend({"a"}, 12);
    job.pass(seconds(1));
    job.run_elastic({"a"}, 15);
    job.join("c", Job::offer_of("c"), Job::elastic_report(RoundId::none, NodeState::stopped));
    job.pass(seconds(6));
    job.suspend({"a"}, 16);
    ASSERT_EQ(job.core.phase(), Phase::training);
    const RoundId round = job.core.round();
    NodeReport held = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    job.join("b", Job::offer_of("b"), held);
    job.clear();
    job.drain("b");
    ASSERT_EQ(job.core.round(), round);
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
    EXPECT_TRUE(job.heard<Prepare>("b").stale);
}

TEST_F(RendezvousPlanned, FinishedNodeThatWasNotDismissedMayComeBack) {
    begin(policy_of(2, 3), {"a", "b", "c"});
    job.drain("c");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.elastic("b", NodeState::finished, 12);
    ASSERT_EQ(job.told<Dismissed>("b"), nullptr);
    job.fail("a", crash_on("a"));
    job.leave("b");
    job.leave("c");
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_FALSE(job.core.verdict().has_value());
}

}  // namespace
}  // namespace regroup::rendezvous
