// SPDX-License-Identifier: Apache-2.0
//
// The nodes that a job waits for after a round, and after a restart of the daemon.
#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

// ---- Nodes under suspicion at the end of a round.

TEST_F(RendezvousPlanned, NextRoundWaitsOnlyForSurvivorsUnderSuspicion) {
    begin(policy_of(1, 4), {"a", "b", "c"});
    job.join("d");
    job.fail("a", crash_on("a"));
    job.suspend({"b"});
    job.disconnect("d");  // Not a member of this round.
    job.suspend({"c"});
    EXPECT_EQ(job.core.round(), RoundId{2});

    begin(policy_of(1, 4), {"a", "b", "c"});
    job.fail("a", crash_on("a"));
    job.suspend({"b"});
    job.disconnect("b");
    job.silence("b");
    job.suspend({"c"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(milliseconds(199));
    EXPECT_EQ(job.core.round(), RoundId{1});
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

// ---- A daemon that comes back.

TEST_F(RendezvousPlanned, FullRoundOfNewProcessesWaitsForTheNodeWithTheState) {
    JobPolicy policy = policy_of(1, 2);
    policy.restarts_max = 2;  // "b" fails twice.
    begin(policy, {"a", "b"});
    job.join("c");
    NodeReport fresh = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    fresh.held_step = 0;
    job.disconnect("a");
    job.elastic("b", NodeState::running, 10);
    fresh.failure = crash_on("b");
    job.tell("b", fresh);
    EXPECT_EQ(job.core.phase(), Phase::ending);  // "a" has not suspended.
    job.suspend({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run_elastic({"a"}, 20);
    job.tell("b", Job::elastic_report(RoundId{2}, NodeState::running));
    job.suspend({"a"}, 20);
    job.disconnect("a");
    fresh.round = RoundId{2};
    job.tell("b", fresh);
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_EQ(describe(job.core.situation(job.now)),
              "2 nodes ready, waiting for a, which may hold a later state, for 200 ms");
    job.suspend({"a"}, 20);
    EXPECT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(job.assignment("a").round, RoundId{3});
}

TEST_F(RendezvousPlanned, LostNodeWithTheStateIsNotAwaitedLonger) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.suspend({"a"}, 20);
    job.cut_off("a");
    NodeReport fresh = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    fresh.held_step = 0;
    job.tell("b", fresh);
    EXPECT_EQ(job.core.round(), RoundId{1});
    job.pass(small_policy().regroup_window);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 2U);
}

TEST_F(RendezvousPlanned, NodeWithTheLastStateInUserCodeIsAwaitedUntilItsLimit) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.killed("b");
    NodeReport busy = Job::elastic_report(RoundId{1}, NodeState::stopping, 20);
    busy.at_work = seconds(100);
    job.join("b", Job::offer_of("b"), busy);  // Only its connection had broken.
    NodeReport fresh = Job::elastic_report(RoundId{1}, NodeState::stopped, 10);
    fresh.held_step = 0;
    job.tell("a", fresh);
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(small_policy().shutdown_timeout + seconds(30));
    EXPECT_EQ(job.core.round(), RoundId{1});
    job.suspend({"b"}, 20);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("b").round, RoundId{2});
}

TEST_F(RendezvousPlanned, RoundThatLostTheStateWhileFormingEndsForAStandbyThatHasSome) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c", Job::offer_of("c"), Job::elastic_report(RoundId::none, NodeState::stopped, 8));
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    ASSERT_EQ(job.told<Assign>("c"), nullptr);
    // The report that the suspended worker died was still on its way.
    for (const char* node : {"a", "b"}) {
        job.tell(node, Job::elastic_report(RoundId{2}, NodeState::running));
    }
    EXPECT_EQ(job.core.phase(), Phase::training);  // They may still restore state from a disk.
    job.resumed("a", 1);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("b").reason,
              "node c holds step 8, but the round began at step 0 without it");
    EXPECT_EQ(job.told<Recovered>("a"), nullptr);
    job.suspend({"a", "b"}, 1);
    EXPECT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(job.assignment("c").round, RoundId{3});
    job.resumed("c", 9);
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.status(job.now).step, 9U);
    EXPECT_EQ(job.core.status(job.now).restarts, 1U);
}

TEST_F(RendezvousPlanned, RoundThatBeganAsFarOrLongAgoContinues) {
    const auto begin_with_standby = [&](std::uint64_t held) {
        begin(policy_of(1, 2), {"a", "b"});
        job.join("c", Job::offer_of("c"),
                 Job::elastic_report(RoundId::none, NodeState::stopped, held));
        job.fail("a", crash_on("a"));
        job.suspend({"b"}, 10);
        ASSERT_EQ(job.core.round(), RoundId{2});
    };
    begin_with_standby(8);
    job.resumed("a", 8);  // From a checkpoint, or as one of two that were one step apart.
    EXPECT_EQ(job.core.phase(), Phase::training);
    begin_with_standby(8);
    Resumed late = {RoundId{2}, 1, milliseconds(3), milliseconds(2), milliseconds(1)};
    late.ago = seconds(60);  // The message is old: the round has continued since.
    job.step(NodeResumed{"a", late});
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST_F(RendezvousPlanned, NodeThatStillSuspendsIsAwaitedIfItHasTheLatestState) {
    job = Job(policy_of(1, 2));
    job.join("a", Job::offer_of("a"), Job::elastic_report(RoundId{7}, NodeState::running, 30));
    job.join_all({"b", "c"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    job.tell("a", Job::elastic_report(RoundId{7}, NodeState::stopped, 30));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").group_rank, 0U);
}

TEST_F(RendezvousPlanned, RestartedDaemonGivesAllNodesTimeToComeBack) {
    job.step(Restarted{});
    EXPECT_TRUE(job.log.empty());
    job.silence("a");
    job.silence("b");
    job.pass(seconds(8) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.join("a", Job::offer_of("a"), Job::elastic_report(RoundId{1}, NodeState::running, 50));
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node b is lost: it did not come back within 8.0 s after a restart of the daemon");
}

/// A node whose launcher hosts the daemon with a journal.
Offer host_of(const std::string& name) {
    Offer offer = Job::offer_of(name);
    offer.hosts_rendezvous = offer.ends_with_daemon = true;
    return offer;
}

TEST_F(RendezvousPlanned, NodeThatEndedWithTheDaemonIsLostWhenItsLauncherRestarts) {
    job.join("b", host_of("b"), job.report_of("b"));
    job.step(Restarted{});
    job.join("a", Job::offer_of("a"), job.report_of("a"));
    EXPECT_EQ(job.core.phase(), Phase::training) << "another daemon may have taken the job over";
    job.join("b2", host_of("b"), {});
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node b is lost: its launcher, which ran the daemon, was ended");
    job.suspend({"a"});
    EXPECT_EQ(job.core.phase(), Phase::training) << "nobody else is waited for";
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST_F(RendezvousPlanned, NodeThatEndedWithTheDaemonIsLostWhenAnotherMemberServesInItsPlace) {
    job.join("b", host_of("b"), job.report_of("b"));
    job.step(Restarted{});
    job.join("a", host_of("a"), job.report_of("a"));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node b is lost: its launcher, which ran the daemon, was ended");
}

TEST_F(RendezvousPlanned, RestartOfALauncherIsNotChargedToItsNode) {
    JobPolicy policy = policy_of(1, 3);
    policy.budgets.losses = 0;
    begin(policy, {"a", "b"});
    job.join("b", host_of("b"), job.report_of("b"));
    job.step(Restarted{});
    job.join("a", Job::offer_of("a"), job.report_of("a"));
    job.join("b2", host_of("b"), {});
    job.suspend({"a"});
    EXPECT_EQ(job.core.phase(), Phase::training) << "--max-node-losses 0";
}

TEST_F(RendezvousPlanned, RestartedLauncherCountsAmongTheRemainingNodes) {
    job.join("b", host_of("b"), job.report_of("b"));
    job.report("a", NodeState::finished);
    job.leave("a");
    job.step(Restarted{});
    job.join("b2", host_of("b"), {});
    EXPECT_EQ(job.core.phase(), Phase::training) << "the one that is left begins again";
    EXPECT_EQ(job.assignment("b2").group_world_size, 1U);
}

// A restarted launcher wants to continue the job, not to leave with all others.
TEST_F(RendezvousPlanned, JobThatAllNodesWereLeavingEndsWithItsEmbeddedDaemon) {
    job.join("b", host_of("b"), job.report_of("b"));
    job.drain("b");
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    job.leave("b");
    ASSERT_NE(job.core.phase(), Phase::closed);
    job.step(Restarted{});
    ASSERT_EQ(job.core.phase(), Phase::closed);
    EXPECT_EQ(job.verdict().exit_code, kExitRequeue);
    EXPECT_THAT(describe(job.verdict().reason), HasSubstr("node b is drained"));
}

// `regroup serve` has taken over the job, and is restarted itself.
TEST_F(RendezvousPlanned, JobThatAllNodesAreLeavingContinuesIfTheDaemonWasSeparate) {
    job.join("b", host_of("b"), job.report_of("b"));
    job.step(Restarted{});
    job.join("b", Job::offer_of("b"), job.report_of("b"));
    job.join("a", Job::offer_of("a"), job.report_of("a"));
    Offer last = Job::offer_of("b");
    last.hosts_rendezvous = true;
    job.join("b", last, job.report_of("b"));
    job.drain("b");
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    job.step(Restarted{});
    EXPECT_NE(job.core.phase(), Phase::closed);
}

TEST_F(RendezvousPlanned, RoundsContinueOverARestartOfTheDaemon) {
    job.step(Restarted{});
    for (const char* node : {"b", "a"}) {
        job.join(node, Job::offer_of(node),
                 Job::elastic_report(RoundId{1}, NodeState::running, 50));
    }
    job.clear();
    job.pass(seconds(60));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{1});
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
}

TEST_F(RendezvousPlanned, RestartDuringARegroupWaitsForAllSurvivors) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    job.fail("a", crash_on("a"));
    job.suspend({"b", "c"});
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.leave("c");
    job.report("a", NodeState::stopped, RoundId{2});
    job.disconnect("b");
    job.suspend({"b"});
    ASSERT_EQ(job.core.phase(), Phase::training);
    // Once more, and now the daemon dies when both have suspended but one is under suspicion.
    job.fail("a", crash_on("a"));
    job.step(Restarted{});
    job.join("a", Job::offer_of("a"), job.report_of("a"));
    job.pass(seconds(2));
    EXPECT_EQ(job.core.phase(), Phase::ending);
}

TEST_F(RendezvousPlanned, SlowestReconnectionIsInTimeForARestartedDaemon) {
    job.step(Restarted{});
    for (const char* node : {"a", "b"}) {
        job.silence(node);
    }
    job.pass(milliseconds(7900));
    EXPECT_EQ(job.core.nodes_count(), 2U);
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.nodes_count(), 0U);
}

TEST_F(RendezvousPlanned, LostNodeIsDetectedEvenIfTheDaemonDiesRepeatedly) {
    job.silence("b");
    const auto live = [&](Duration span) {
        job.step(Restarted{});
        job.join("a", Job::offer_of("a"), Job::elastic_report(RoundId{1}, NodeState::running, 50));
        job.pass(span);
    };
    live(milliseconds(4500));
    live(milliseconds(4500));
    EXPECT_EQ(job.core.phase(), Phase::training);
    live(seconds(4) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "node b is lost: it did not come back after 3 restarts of the daemon");
}

TEST_F(RendezvousPlanned, NodeThatWasAwayHearsOfTheRecoveryWhenItIsBack) {
    job = Job(policy_of(1, 2));
    job.join_all({"a", "b"});
    job.pass(small_policy().last_call);
    job.run({"a", "b"});
    job.fail("b", crash_on("b"));
    job.report("a", NodeState::stopped);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run({"a"});
    // The ledger is kept by node a, which comes back to the next daemon last.
    job.step(Restarted{});
    job.silence("a");
    job.run({"b"});
    const Incident incident = job.heard<Recovered>("a").incident;
    job.clear();
    NodeReport report;
    report.round = RoundId{2};
    report.state = NodeState::running;
    job.join("a", Job::offer_of("a"), report);
    EXPECT_EQ(job.heard<Recovered>("a").incident, incident);
    EXPECT_EQ(job.told<Recovered>("b"), nullptr);
    job.clear();
    job.report("a", NodeState::running);
    EXPECT_EQ(job.told<Recovered>("a"), nullptr);
    // Also while the round ends.
    job.report("b", NodeState::stopping, RoundId{2}, crash_on("b"));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.disconnect("a");
    job.join("a", Job::offer_of("a"), report);
    EXPECT_EQ(job.heard<Recovered>("a").incident, incident);
}

TEST_F(RendezvousPlanned, PlannedChangeBecomesARecoveryOnceSomethingIsLost) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    leave("b");
    job.pass(std::chrono::minutes(2));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.cut_off("c");
    job.pass(milliseconds(200));
    job.suspend({"a", "b"}, 12);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.resumed("a", 13);
    EXPECT_FALSE(job.heard<Recovered>("a").incident.planned);
    EXPECT_THAT(describe(job.heard<Recovered>("a").incident.cause), HasSubstr("node c is lost"));
}

TEST_F(RendezvousPlanned, NodeThatMustWaitIsToldSoAtOnce) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join_all({"c", "d"});
    EXPECT_TRUE(job.heard<Waiting>("d").standby);
    job.pass(std::chrono::minutes(2));
    job.clear();
    job.join("e");
    ASSERT_EQ(job.times_told<Waiting>("e"), 1U);
    EXPECT_TRUE(job.heard<Waiting>("e").standby);
    EXPECT_EQ(job.told<Waiting>("d"), nullptr);
    job.disconnect("e");
    job.join("e");
    EXPECT_EQ(job.times_told<Waiting>("e"), 2U);
}

}  // namespace
}  // namespace regroup::rendezvous
