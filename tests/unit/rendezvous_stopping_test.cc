// SPDX-License-Identifier: Apache-2.0
//
// How a round ends, the failure that is blamed, and the charge.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

// Three nodes in a running round, with room for one restart.
class RendezvousStopping : public testing::Test {
   protected:
    RendezvousStopping() : job(small_policy()) { begin(); }
    void begin() {
        job.join_all({"a", "b", "c"});
        job.run({"a", "b", "c"});
        job.clear();
    }
    void restart_with(const JobPolicy& policy) {
        job = Job(policy);
        begin();
    }
    Job job;
};

TEST_F(RendezvousStopping, WorkerFailureStopsEveryoneAndCostsOneRestart) {
    job.fail("b", crash_on("b"));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason, "rank 0 on b was ended by SIGSEGV");
    job.confirm_stopped({"a", "c"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
    EXPECT_EQ(job.assignment("a").reason, "rank 0 on b was ended by SIGSEGV");
}

TEST_F(RendezvousStopping, NextRoundBeginsOnlyWhenTheLastWorkerIsGone) {
    job.fail("b", crash_on("b"));
    job.confirm_stopped({"a"});
    job.report("c", NodeState::stopping);
    job.pass(seconds(8));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.confirm_stopped({"c"});
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST_F(RendezvousStopping, ExhaustedBudgetClosesTheJobWithTheCodeOfTheFailure) {
    job.fail("b", error_on("b", 3));
    job.confirm_stopped({"a", "c"});
    job.run({"a", "b", "c"});
    job.fail("a", error_on("a", 7));
    job.confirm_stopped({"b", "c"});
    EXPECT_EQ(job.core.phase(), Phase::closed);
    const Verdict& verdict = job.verdict();
    EXPECT_EQ(verdict.outcome, Outcome::failed);
    EXPECT_EQ(verdict.exit_code, 7);
    EXPECT_EQ(verdict.restarts, 1U);
    EXPECT_EQ(verdict.author, "node a");
    EXPECT_EQ(verdict.reason,
              "rank 0 on a exited with code 7; the only restart is used (--max-restarts 1)");
    EXPECT_EQ(verdict.failure, error_on("a", 7));
    for (const char* node : {"a", "b", "c"}) {
        EXPECT_EQ(job.heard<Closed>(node).verdict, verdict);
    }
}

TEST_F(RendezvousStopping, FirstFailureClosesAJobWithoutABudget) {
    JobPolicy policy = small_policy();
    policy.restarts_max = 0;
    restart_with(policy);
    job.fail("b", crash_on("b", SIGKILL));
    job.confirm_stopped({"a", "c"});
    EXPECT_EQ(job.verdict().exit_code, 128 + SIGKILL);
    EXPECT_EQ(job.verdict().reason,
              "rank 0 on b was ended by SIGKILL; no restarts are allowed (--max-restarts 0)");
}

TEST_F(RendezvousStopping, ConsequencesOfTheFirstFailureAreNeitherBlamedNorCharged) {
    job.report("b", NodeState::stopping, RoundId{1}, crash_on("b"));
    job.fail("a", error_on("a"));
    job.fail("c", error_on("c"));
    job.fail("b", crash_on("b"));
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
    EXPECT_EQ(job.assignment("a").reason, "rank 0 on b was ended by SIGSEGV");
}

TEST_F(RendezvousStopping, RootFailureIsFoundEvenIfItsConsequenceIsReportedFirst) {
    JobPolicy policy = small_policy();
    policy.restarts_max = 0;
    restart_with(policy);
    job.fail("a", error_on("a"));  // Its connection to b's worker broke.
    job.fail("b", crash_on("b"));
    job.confirm_stopped({"c"});
    EXPECT_EQ(job.verdict().failure, crash_on("b"));
    EXPECT_EQ(job.verdict().exit_code, 128 + SIGSEGV);
}

TEST_F(RendezvousStopping, FailureIsChargedEvenIfPeersNoticeItFirst) {
    job.report("b", NodeState::stopping);  // Its workers have lost a peer that they cannot name.
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.confirm_stopped({"b", "c"});
    WorkerFailure slow = error_on("a", 1);
    slow.announced = true;
    slow.error_message = "no such shard";
    job.fail("a", slow);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("b").restart_count, 1U);
    EXPECT_EQ(job.assignment("b").reason, "rank 0 on a exited with code 1: no such shard");
}

TEST_F(RendezvousStopping, LostNodeExplainsTheFailuresOfItsPeers) {
    job.silence("c");
    job.fail("a", error_on("a"));
    job.fail("b", error_on("b"));
    EXPECT_EQ(job.core.phase(), Phase::ending);  // The node c has not answered.
    job.pass(seconds(3));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
    EXPECT_EQ(job.assignment("a").reason, "node c is lost: silent for 3.0 s");
}

TEST_F(RendezvousStopping, GrowthIsNotChargedEvenIfStoppedPeersFail) {
    job.leave("c");
    job.confirm_stopped({"a", "b"});
    job.run({"a", "b"});
    job.join("d");
    job.clear();
    job.pass(seconds(5));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    // The workers of a were stopped first; those of b failed before their own stop arrived.
    job.confirm_stopped({"a"});
    job.fail("b", error_on("b"));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("b").restart_count, 0U);
    EXPECT_EQ(job.assignment("b").reason, "node d joined");
}

TEST_F(RendezvousStopping, SilentNodeIsLostExactlyAtTheLimit) {
    job.silence("c");
    const Instant silent_since = job.now;
    job.pass(seconds(3) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.now - silent_since, seconds(3));
    EXPECT_EQ(job.heard<Stop>("a").reason, "node c is lost: silent for 3.0 s");
}

TEST_F(RendezvousStopping, BrokenConnectionIsALossAfterTheReturnLimit) {
    job.cut_off("c");
    job.pass(milliseconds(199));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node c is lost: its connection broke and did not come back within 200 ms");
}

TEST_F(RendezvousStopping, NodeThatComesBackInTimeContinuesItsRound) {
    job.disconnect("c");
    job.pass(milliseconds(150));
    job.join("c", Job::offer_of("c"), {RoundId{1}, NodeState::running, 2000, {}});
    job.pass(seconds(30));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{1});
    EXPECT_EQ(job.told<Stop>("c"), nullptr);
}

TEST_F(RendezvousStopping, NodeThatComesBackTooLateIsToldToStopAndJoinsTheNextRound) {
    job.disconnect("c");
    job.silence("c");
    job.pass(milliseconds(200));
    job.join("c", Job::offer_of("c"), {RoundId{1}, NodeState::running, 2000, {}});
    EXPECT_EQ(job.heard<Stop>("c").round, RoundId{1});
    job.report("c", NodeState::stopped, RoundId{1});
    job.confirm_stopped({"a", "b"});
    EXPECT_EQ(job.assignment("c").group_world_size, 3U);
    EXPECT_EQ(job.assignment("c").first_rank, 4U);
}

TEST_F(RendezvousStopping, ReportOfANodeThatWasGivenUpIsFenced) {
    job.silence("c");
    job.pass(seconds(3));
    job.report("c", NodeState::running, RoundId{1});
    ASSERT_NE(job.told<Fenced>("c"), nullptr);
    EXPECT_EQ(job.core.nodes_count(), 2U);
}

TEST_F(RendezvousStopping, AllNodesLostAtOnceFormNoRoundWithEachOther) {
    for (const char* node : {"a", "b", "c"}) {
        job.silence(node);
    }
    job.pass(seconds(10));
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_EQ(job.core.round(), RoundId{1});
    EXPECT_EQ(job.core.nodes_count(), 0U);
}

TEST_F(RendezvousStopping, DaemonThatSleptGivesAllNodesTimeToReport) {
    job.now += seconds(20);  // The core was not called meanwhile.
    EXPECT_TRUE(job.core.advance(job.now).empty());
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.silence("c");
    job.pass(seconds(2));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(seconds(1));  // But only once.
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.core.nodes_count(), 2U);
}

TEST_F(RendezvousStopping, AllFinishedClosesWithSuccess) {
    job.report("a", NodeState::finished);
    job.report("b", NodeState::finished);
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.report("c", NodeState::finished);
    EXPECT_EQ(job.verdict().outcome, Outcome::succeeded);
    EXPECT_EQ(job.verdict().exit_code, 0);
    EXPECT_EQ(job.verdict().author, "the workers");
    EXPECT_EQ(job.heard<Closed>("a").verdict, *job.core.verdict());
}

TEST_F(RendezvousStopping, DepartureOfANodeThatFinishedDoesNoHarm) {
    job.report("a", NodeState::finished);
    job.silence("a");
    job.pass(seconds(4));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.report("b", NodeState::finished);
    job.report("c", NodeState::finished);
    EXPECT_EQ(job.verdict().outcome, Outcome::succeeded);
}

TEST_F(RendezvousStopping, FinishedNodesTakePartAgainWhenOthersMustRestart) {
    job.report("a", NodeState::finished);
    job.fail("b", crash_on("b"));
    EXPECT_EQ(job.told<Stop>("a"), nullptr);  // It has nothing to stop.
    job.confirm_stopped({"c"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 3U);
}

TEST_F(RendezvousStopping, JobSucceedsIfAllFinishWhileTheRoundStops) {
    job.leave("c");
    job.confirm_stopped({"a", "b"});
    job.run({"a", "b"});
    job.join("d");
    job.pass(seconds(5));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.report("a", NodeState::finished);
    job.report("b", NodeState::finished);
    EXPECT_EQ(job.verdict().outcome, Outcome::succeeded);
}

TEST_F(RendezvousStopping, DepartureIsNamedAndNotCharged) {
    job.leave("b");
    EXPECT_EQ(job.heard<Stop>("a").reason, "node b left: SIGTERM");
    job.confirm_stopped({"a", "c"});
    EXPECT_EQ(job.assignment("c").restart_count, 0U);
    EXPECT_EQ(job.assignment("c").first_rank, 2U);
}

TEST_F(RendezvousStopping, JobBelowTheMinimumWaitsForAReplacement) {
    job.leave("b");
    job.leave("c");
    job.confirm_stopped({"a"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.join("b2", Job::offer_of("b"));
    EXPECT_EQ(job.core.phase(), Phase::forming);  // Others may come back as well.
    job.join("c2", Job::offer_of("c"));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("b2").first_rank, 2U);
    EXPECT_EQ(job.assignment("c2").first_rank, 4U);
}

TEST_F(RendezvousStopping, NodeWithWorkersInUserCodeHasTheTimeThatItsAgentGivesThem) {
    job.fail("b", crash_on("b"));
    NodeReport busy;
    busy.round = RoundId{1};
    busy.state = NodeState::stopping;
    busy.elastic = true;
    busy.at_work = seconds(100);
    job.tell("a", busy);
    job.report("c", NodeState::stopping);
    job.pass(seconds(10) + seconds(15));  // The third node gets no more time than that.
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.core.nodes_count(), 2U);
    busy.at_work = {};  // Its agent is ending them now.
    job.tell("a", busy);
    job.pass(seconds(80));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.pass(seconds(30));
    EXPECT_NE(job.core.phase(), Phase::ending);
}

TEST_F(RendezvousStopping, NodeThatNeverConfirmsIsLostAfterShutdownTimeoutAndMargin) {
    job.fail("b", crash_on("b"));
    job.confirm_stopped({"a"});
    job.report("c", NodeState::stopping);
    job.pass(seconds(10) + seconds(15) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").reason,
              "node c is lost: it did not confirm that its workers are gone");
}

TEST_F(RendezvousStopping, OperatorClosesTheJobWithReasonAndAuthor) {
    job.step(StopRequested{"ops", "maintenance"});
    const Verdict& verdict = job.verdict();
    EXPECT_EQ(verdict.outcome, Outcome::stopped);
    EXPECT_EQ(verdict.author, "ops");
    EXPECT_EQ(verdict.reason, "maintenance");
    EXPECT_EQ(job.heard<Closed>("c").verdict, verdict);
}

TEST_F(RendezvousStopping, ClosedJobStaysClosed) {
    job.fail("b", crash_on("b"));
    job.confirm_stopped({"a", "c"});
    job.step(StopRequested{"ops", "maintenance"});
    const Verdict first = job.verdict();
    EXPECT_EQ(first.restarts, 1U);
    job.step(StopRequested{"someone else", "another reason"});
    job.report("a", NodeState::finished);
    job.leave("b");
    job.pass(seconds(60));
    EXPECT_EQ(*job.core.verdict(), first);
    job.clear();
    job.join("late");
    EXPECT_EQ(job.heard<Closed>("late").verdict, first);
    EXPECT_EQ(job.log.size(), 1U);
}

TEST_F(RendezvousStopping, NodesOfAClosedJobAreForgottenWhenTheyLeave) {
    job.step(StopRequested{"ops", "maintenance"});
    job.disconnect("a");
    job.leave("b");
    job.silence("a");
    job.silence("c");
    job.pass(seconds(4));
    EXPECT_EQ(job.core.nodes_count(), 0U);
    EXPECT_EQ(job.core.next_deadline(), Instant::max());
}

// ---- Heartbeats repair lost messages; repeated messages change nothing.

TEST_F(RendezvousStopping, HeartbeatOfAMemberThatMissedItsAssignmentIsAnsweredWithIt) {
    job.report("c", NodeState::stopped, RoundId::none);  // As if it had never heard of the round.
    job.clear();
    Job fresh(fixed_policy(2));
    fresh.join_all({"a", "b"});
    fresh.clear();
    fresh.beat("b");
    ASSERT_NE(fresh.told<Assign>("b"), nullptr);
    EXPECT_EQ(fresh.assignment("b").round, RoundId{1});
}

TEST_F(RendezvousStopping, HeartbeatOfAMemberThatMissedItsStopIsAnsweredWithIt) {
    job.fail("b", crash_on("b"));
    job.clear();
    job.beat("a");
    EXPECT_EQ(job.heard<Stop>("a").round, RoundId{1});
}

TEST_F(RendezvousStopping, MemberThatNeverHeardOfARoundConfirmsItsStopByNamingIt) {
    Job fresh(fixed_policy(2));
    fresh.join_all({"a", "b"});
    fresh.fail("a", crash_on("a"));
    EXPECT_EQ(fresh.core.phase(), Phase::ending);
    fresh.clear();
    fresh.beat("b");  // It still says that it has been in no round.
    ASSERT_NE(fresh.told<Stop>("b"), nullptr);
    EXPECT_EQ(fresh.core.phase(), Phase::ending);
    fresh.report("b", NodeState::stopped, RoundId{1});
    EXPECT_EQ(fresh.core.phase(), Phase::training);
}

TEST_F(RendezvousStopping, HeartbeatIsAnsweredSoThatTheAgentKnowsTheDaemonLives) {
    job.beat("a");
    EXPECT_EQ(job.heard<Alive>("a").round, RoundId{1});
}

TEST_F(RendezvousStopping, RepeatedOrLateReportsChangeNothing) {
    job.report("b", NodeState::stopping, RoundId{1}, crash_on("b"));
    job.confirm_stopped({"a", "c"});
    job.fail("b", crash_on("b"));
    EXPECT_EQ(job.core.round(), RoundId{2});
    job.fail("b", crash_on("b"));  // Says round 2, after it was launched there.
    job.clear();
    Job other(small_policy());
    other.join_all({"a", "b", "c"});
    other.run({"a", "b", "c"});
    other.report("b", NodeState::stopping, RoundId{1}, crash_on("b"));
    other.confirm_stopped({"a", "c"});
    other.fail("b", crash_on("b"));
    other.run({"a", "b", "c"});
    for (int i = 0; i < 3; ++i) {  // The old failure is repeated.
        other.report("b", NodeState::stopped, RoundId{1}, crash_on("b"));
    }
    EXPECT_EQ(other.core.phase(), Phase::training);
    EXPECT_EQ(other.core.round(), RoundId{2});
    EXPECT_EQ(other.assignment("b").restart_count, 1U);
}

TEST_F(RendezvousStopping, OldReportDoesNotRestoreAnOldStorePort) {
    job.fail("b", crash_on("b"));
    NodeReport fresh{RoundId{1}, NodeState::stopped, 4002, {}};
    (void)job.core.step(job.now, NodeReported{"a", fresh});
    (void)job.core.step(job.now, NodeReported{"a", {RoundId{1}, NodeState::running, 4001, {}}});
    job.confirm_stopped({"c"});
    EXPECT_EQ(job.assignment("c").master_port, 4002);
}

// ---- Departure.

TEST_F(RendezvousStopping, FinishedNodeIsDismissedUnlessItServesTheStore) {
    job.report("a", NodeState::finished);  // Group rank 0, by its name.
    EXPECT_EQ(job.told<Dismissed>("a"), nullptr);
    job.report("b", NodeState::finished);
    EXPECT_EQ(job.heard<Dismissed>("b").round, job.core.round());
}

TEST_F(RendezvousStopping, DepartureOfAFinishedNodeStopsNoOtherNode) {
    job.report("c", NodeState::finished);
    job.leave("c");
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.report("b", NodeState::finished);
    job.report("a", NodeState::finished);
    EXPECT_EQ(job.verdict().outcome, Outcome::succeeded);
}

TEST_F(RendezvousStopping, FailureAfterDeparturesRestartsWithTheRemainingNodes) {
    job.report("c", NodeState::finished);
    job.leave("c");
    job.fail("b", crash_on("b"));
    job.confirm_stopped({"a"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST_F(RendezvousStopping, FailureAfterTooManyDeparturesClosesTheJob) {
    job.report("b", NodeState::finished);
    job.leave("b");
    job.report("c", NodeState::finished);
    job.leave("c");
    job.fail("a", error_on("a", 3));
    EXPECT_EQ(job.verdict().exit_code, 3);
    EXPECT_EQ(job.verdict().reason,
              "rank 0 on a exited with code 3; too few nodes remain for a restart, for b, c have "
              "finished and left");
}

}  // namespace
}  // namespace regroup::rendezvous
