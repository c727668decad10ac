// SPDX-License-Identifier: Apache-2.0
//
// Elastic rounds grow and have standbys.
#include "tests/unit/rendezvous_planned.h"

#include <gtest/gtest.h>

namespace regroup::rendezvous {
namespace {

// ---- Growth.

TEST_F(RendezvousPlanned, NewNodeStartsItsWorkersBeforeTheRoundChanges) {
    job.join("c");
    EXPECT_TRUE(job.heard<Waiting>("c").prestart);
    EXPECT_FALSE(job.heard<Waiting>("c").standby);
    job.pass(seconds(10));
    EXPECT_EQ(job.core.phase(), Phase::training);  // Its workers have not started yet.
    job.tell("c", Job::elastic_report(RoundId::none, NodeState::stopped));
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::changing);
    for (const char* node : {"a", "b"}) {
        EXPECT_EQ(job.told<Stop>(node), nullptr);
        EXPECT_EQ(job.heard<Prepare>(node).round, RoundId{1});
        EXPECT_FALSE(job.heard<Prepare>(node).leave);
        EXPECT_EQ(job.heard<Prepare>(node).reason, "node c joined");
    }
    job.suspend({"a"}, 20);
    EXPECT_EQ(job.core.phase(), Phase::changing);
    job.suspend({"b"}, 20);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 3U);
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
}

TEST_F(RendezvousPlanned, NodeWhoseWorkersNeverStartIsAdmittedNevertheless) {
    job.join("c");
    job.pass(seconds(29));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(seconds(1));
    EXPECT_EQ(job.core.phase(), Phase::changing);
}

TEST_F(RendezvousPlanned, NonElasticWorkersAreStoppedForGrowth) {
    job.run({"b"});
    job.join("c");
    job.pass(seconds(5));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_EQ(job.told<Prepare>("a"), nullptr);
}

TEST_F(RendezvousPlanned, PrepareIsRepeatedToANodeThatMissedIt) {
    leave("b");
    job.clear();
    job.beat("a");
    EXPECT_FALSE(job.heard<Prepare>("a").leave);
    job.beat("b");
    EXPECT_TRUE(job.heard<Prepare>("b").leave);
}

TEST_F(RendezvousPlanned, FailureBeforeTheBoundaryIsCharged) {
    leave("b");
    NodeReport report = Job::elastic_report(RoundId{1}, NodeState::stopping, 11);
    report.failure = crash_on("a");
    job.tell("a", report);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("b").reason, "rank 0 on a was ended by SIGSEGV");
    job.suspend({"b"});
    report.state = NodeState::stopped;
    job.tell("a", report);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousPlanned, NodeLostBeforeTheBoundaryStopsTheOthers) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    leave("b");
    job.cut_off("c");
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_NE(job.told<Stop>("b"), nullptr);
}

TEST_F(RendezvousPlanned, RoundStopsIfTheBoundaryIsNotReachedInTime) {
    leave("b");
    job.pass(std::chrono::minutes(2));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node b leaves: stopped by SIGTERM, and not all workers reached a step boundary in "
              "time");
}

// ---- Standbys.

TEST_F(RendezvousPlanned, StandbysStartTheirWorkersAheadUpToTheLimit) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join_all({"c", "d"});
    EXPECT_TRUE(job.heard<Waiting>("c").prestart);
    EXPECT_TRUE(job.heard<Waiting>("c").standby);
    job.pass(seconds(2));
    EXPECT_FALSE(job.heard<Waiting>("d").prestart);
    job.leave("c");
    EXPECT_TRUE(job.heard<Waiting>("d").prestart);
}

TEST_F(RendezvousPlanned, StandbysOfNonElasticRoundsOnlyWait) {
    begin(policy_of(2, 2), {"a", "b"});
    job.run({"a", "b"});
    job.join("c");
    job.pass(seconds(2));
    EXPECT_FALSE(job.heard<Waiting>("c").prestart);
    job.run_elastic({"a"});
    job.clear();
    job.run_elastic({"b"});  // Now all are.
    EXPECT_TRUE(job.heard<Waiting>("c").prestart);
}

TEST_F(RendezvousPlanned, StandbyWithStartedWorkersReplacesALostNodeAtOnce) {
    begin(policy_of(3, 3), {"a", "b", "c"});
    job.join_all({"d", "e"});
    job.tell("e", Job::elastic_report(RoundId::none, NodeState::stopped));
    job.cut_off("b");
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.suspend({"a", "c"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("e").group_rank, 1U);
    EXPECT_EQ(job.assignment("e").first_rank, 2U);
    EXPECT_EQ(job.assignment("c").first_rank, 4U);
    EXPECT_EQ(job.told<Assign>("d"), nullptr);
}

}  // namespace
}  // namespace regroup::rendezvous
