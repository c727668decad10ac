// SPDX-License-Identifier: Apache-2.0
//
// The ledger of a recovery: its duration and its lost steps.
#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

class RendezvousLedger : public RendezvousPlanned {
   protected:
    RendezvousLedger() {
        JobPolicy policy = policy_of(1, 3);
        policy.restarts_max = 10;
        begin(policy, {"a", "b"});
    }
    NodeReport report_of(NodeState state, std::uint64_t step, std::uint64_t held) const {
        NodeReport report = Job::elastic_report(job.core.round(), state, step);
        report.held_step = held;
        return report;
    }
    /// All workers are killed; the nodes had come to `step`.
    void all_die(std::uint64_t step) {
        const RoundId round = job.core.round();
        NodeReport dead = report_of(NodeState::stopped, step, 0);
        dead.failure = crash_on("a");
        job.tell("a", dead);
        dead.failure = crash_on("b");
        dead.round = round;
        job.tell("b", dead);
    }
    /// The only worker of node a dies after a step that it had not reported.
    void a_dies_at(std::uint64_t step) {
        NodeReport dead = report_of(NodeState::stopped, step - 1, 0);
        dead.failure = crash_on("a");
        dead.ended_step = step;
        job.tell("a", dead);
    }
    const Incident& incident() {
        const auto* told = job.told<Recovered>("a");
        ENSURE(told != nullptr);
        return told->incident;
    }
    Resumed resumed_at(std::uint64_t step) const {
        return {job.core.round(), step, milliseconds(3), milliseconds(2), milliseconds(1)};
    }
};

// ---- Durations.

TEST_F(RendezvousLedger, StartOfANewProcessIsPartOfTheTotal) {
    job.fail("a", crash_on("a"));
    job.now += milliseconds(4);
    job.suspend({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(2006);
    job.resumed("a", 11);  // It reports only 6 ms.
    EXPECT_EQ(incident().total(), milliseconds(2010));
    EXPECT_EQ(incident().stop, milliseconds(4));
    EXPECT_EQ(incident().join, milliseconds(2000));
    EXPECT_EQ(incident().communicator, milliseconds(3));
    EXPECT_EQ(incident().state, milliseconds(2));
    EXPECT_EQ(incident().first_step, milliseconds(1));
    EXPECT_EQ(job.core.status(job.now).goodput.lost, milliseconds(2010));
}

TEST_F(RendezvousLedger, TimeReportedByTheNewRoundIsNeverReduced) {
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 10);
    job.now += milliseconds(1);  // Less than the 6 ms that it reports.
    job.resumed("a", 11);
    EXPECT_EQ(incident().join, Duration::zero());
    EXPECT_EQ(incident().total(), milliseconds(6));
}

TEST_F(RendezvousLedger, LateResumedDoesNotMakeTheRecoveryLonger) {
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 10);
    job.now += milliseconds(1900);
    Resumed late = resumed_at(11);
    late.ago = milliseconds(1600);
    job.step(NodeResumed{"a", late});
    EXPECT_EQ(incident().total(), milliseconds(300));
    EXPECT_EQ(incident().join, milliseconds(294));
}

TEST_F(RendezvousLedger, BackOffAndStartOfProcessesAreSeparateStages) {
    job.cut_off("b");
    job.pass(milliseconds(200));
    job.suspend({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(50);
    job.resumed("a", 11);
    EXPECT_EQ(incident().detect, milliseconds(200));
    EXPECT_EQ(incident().decide, Duration::zero());
    EXPECT_EQ(incident().join, milliseconds(44));
    EXPECT_EQ(incident().total(), milliseconds(250));
}

TEST_F(RendezvousLedger, RoundThatEndedWhileTheDaemonWasAwayIsCountedFromItsEnd) {
    NodeReport dead = report_of(NodeState::stopped, 10, 10);
    dead.failure = crash_on("a");
    dead.ended_ago = seconds(2);
    job.now += seconds(5);
    job.join("a", Job::offer_of("a"), dead);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.suspend({"b"}, 10);
    job.now += milliseconds(10);
    job.resumed("a", 11);
    EXPECT_EQ(incident().detect, seconds(2));
    EXPECT_EQ(incident().total(), milliseconds(2010));
}

TEST_F(RendezvousLedger, FirstPeerThatNoticedTheEndSetsItsTime) {
    NodeReport torn = report_of(NodeState::running, 10, 10);
    torn.broken_links = {{0, 2, "closed the connection"}};
    torn.ended_ago = seconds(3);
    job.now += seconds(5);
    job.join("a", Job::offer_of("a"), torn);
    job.now += milliseconds(100);
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    job.now += milliseconds(10);
    job.resumed("a", 11);
    EXPECT_EQ(incident().detect, milliseconds(3100));
}

TEST_F(RendezvousLedger, FirstPeerThatNoticedTheEndMayReportLater) {
    NodeReport dead = report_of(NodeState::stopped, 10, 10);
    dead.failure = error_on("a");
    job.now += seconds(5);
    job.join("a", Job::offer_of("a"), dead);  // Its agent had been stopped, too.
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.now += milliseconds(10);
    dead.failure = crash_on("b");
    dead.ended_ago = milliseconds(710);
    job.join("b", Job::offer_of("b"), dead);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(20);
    job.resumed("a", 11);
    EXPECT_EQ(incident().detect, milliseconds(700));
    EXPECT_EQ(incident().total(), milliseconds(730));
}

TEST_F(RendezvousLedger, IncidentBeginsWithANodeThatFellSilentEarlier) {
    JobPolicy policy = policy_of(1, 3);
    policy.restarts_max = 10;
    begin(policy, {"a", "b", "c"});
    job.silence("c");
    job.now += seconds(2);
    job.fail("b", crash_on("b"));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    job.suspend({"a"}, 10);
    job.now += seconds(1);
    job.pass(milliseconds(1));
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(10);
    job.resumed("a", 11);
    EXPECT_GE(incident().detect, seconds(2));
}

TEST_F(RendezvousLedger, ChangeThatFailedWhileTheDaemonWasAwayIsALossFromThen) {
    leave("b");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.now += seconds(5);
    NodeReport dead = report_of(NodeState::stopped, 10, 10);
    dead.failure = crash_on("a");
    dead.ended_ago = seconds(3);
    job.join("a", Job::offer_of("a"), dead);
    job.suspend({"b"}, 10);
    job.now += milliseconds(10);
    job.resumed("a", 11);
    EXPECT_EQ(incident().stop, seconds(3));
    EXPECT_EQ(incident().total(), milliseconds(3010));
}

TEST_F(RendezvousLedger, RecoveryCutShortEndsAtTheFirstSignOfTheNextLoss) {
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += seconds(5);
    NodeReport dead = Job::elastic_report(RoundId{2}, NodeState::stopped, 10);
    dead.failure = crash_on("b");
    dead.ended_ago = seconds(3);
    job.join("b", Job::offer_of("b"), dead);
    job.suspend({"a"}, 10);
    job.now += milliseconds(6);
    job.resumed("a", 11);
    ASSERT_EQ(job.core.status(job.now).incidents.size(), 2U);
    EXPECT_EQ(job.core.status(job.now).incidents[0].first_step, seconds(2));
    EXPECT_EQ(incident().detect, seconds(3));
    EXPECT_EQ(job.core.status(job.now).goodput.lost, milliseconds(5006));
}

TEST_F(RendezvousLedger, NoTimeIsCountedTwice) {
    job.fail("a", crash_on("a"));
    job.now += milliseconds(4);
    job.suspend({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(100);
    job.resumed("a", 11);
    ASSERT_EQ(job.core.status(job.now).goodput.lost, milliseconds(104));
    // The node had been back for 20 ms when a peer failed.
    job.now += milliseconds(20);
    NodeReport dead = Job::elastic_report(RoundId{2}, NodeState::stopped, 12);
    dead.failure = crash_on("b");
    dead.ended_ago = milliseconds(60);
    job.join("b", Job::offer_of("b"), dead);
    job.suspend({"a"}, 12);
    job.now += milliseconds(6);
    job.resumed("a", 13);
    EXPECT_EQ(incident().detect, milliseconds(20));
    EXPECT_EQ(job.core.status(job.now).goodput.lost, milliseconds(130));
}

TEST_F(RendezvousLedger, FailedPlannedChangeDoesNotCountAsPlanned) {
    leave("b");
    job.suspend({"a"}, 10);
    job.leave("b");
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.resumed("a", 11);
    ASSERT_EQ(job.core.status(job.now).goodput.count, 1U);
    EXPECT_EQ(job.core.status(job.now).goodput.planned, 1U);
    EXPECT_EQ(job.core.status(job.now).goodput.lost, incident().total());

    begin(policy_of(1, 3), {"a", "b"});
    leave("b");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.resumed("a", 11);
    EXPECT_FALSE(incident().planned);
    ASSERT_EQ(job.core.status(job.now).goodput.count, 1U);
    EXPECT_EQ(job.core.status(job.now).goodput.planned, 0U);
    job.step(StopRequested{"ops", "enough"});
    EXPECT_EQ(job.verdict().goodput.planned, 0U);
}

// ---- Lost steps.

TEST_F(RendezvousLedger, StepWhoseStateNoProcessHasIsReportedAsLost) {
    job.run_elastic({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 1);
    EXPECT_EQ(incident().lost_steps, 512U);
    EXPECT_THAT(
        describe(incident()),
        HasSubstr("started again on node a; no process had kept the last state: back from step 512 "
                  "to step 0 (512 steps to do again) (detect"));
    EXPECT_EQ(job.core.status(job.now).step, 1U);
    EXPECT_EQ(job.core.status(job.now).goodput.lost_steps, 512U);
    job.step(StopRequested{"ops", "enough"});
    EXPECT_EQ(job.verdict().goodput.lost_steps, 512U);
}

TEST_F(RendezvousLedger, StepInACheckpointIsNotLost) {
    job.run_elastic({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 501);
    EXPECT_EQ(incident().lost_steps, 12U);
    EXPECT_THAT(describe(incident()), HasSubstr("back from step 512 to step 500 (12 steps"));
}

// Workers commit many steps between two heartbeats.
TEST_F(RendezvousLedger, StepsReportedOnlyByDeadWorkersAreLostToo) {
    job.run_elastic({"a", "b"}, 512);
    for (const std::uint64_t step : {600U, 90U}) {  // The second time short of the furthest.
        NodeReport dead = report_of(NodeState::stopped, 512, 0);
        dead.failure = crash_on("a");
        dead.ended_step = step;
        job.tell("a", dead);
        dead.failure = crash_on("b");
        job.tell("b", dead);
        job.pass(milliseconds(200));
        job.resumed("a", 1);
        EXPECT_EQ(incident().lost_steps, step);
    }
    EXPECT_EQ(job.core.status(job.now).goodput.lost_steps, 690U);
}

TEST_F(RendezvousLedger, StepCommittedOnlyByTheDeadWorkerIsNotLost) {
    job.run_elastic({"a", "b"}, 512);
    a_dies_at(513);
    job.suspend({"b"}, 512);
    job.resumed("a", 513);
    EXPECT_EQ(incident().lost_steps, 0U);
}

// The daemon and all workers ended: the journal has only older steps.
TEST_F(RendezvousLedger, LossWithTheDaemonIsReportedAsALowerBound) {
    job.run_elastic({"a", "b"}, 512);
    job.step(Restarted{});
    job.silence("a");
    job.silence("b");
    job.join("c");
    job.pass(seconds(9));
    ASSERT_EQ(job.core.phase(), Phase::training);
    job.resumed("c", 1);
    const Incident& incident = job.heard<Recovered>("c").incident;
    EXPECT_EQ(incident.lost_steps, 512U);
    EXPECT_TRUE(incident.lost_at_least);
    EXPECT_THAT(describe(incident),
                HasSubstr("back from step 512 or later to step 0 (512 steps or more to do again)"));
    EXPECT_TRUE(job.core.status(job.now).goodput.lost_at_least);
}

TEST_F(RendezvousLedger, NodeThatComesBackTooLateHasLostNoSteps) {
    job.run_elastic({"a", "b"}, 512);
    job.step(Restarted{});
    job.silence("a");
    job.silence("b");
    job.pass(seconds(9));
    NodeReport late = report_of(NodeState::stopped, 600, 600);
    job.join("a2", Job::offer_of("a"), late);
    job.pass(seconds(6));
    ASSERT_EQ(job.core.phase(), Phase::training) << describe(job.core.situation(job.now));
    job.resumed("a2", 601);
    EXPECT_FALSE(job.heard<Recovered>("a2").incident.lost_at_least);
    EXPECT_EQ(job.heard<Recovered>("a2").incident.lost_steps, 0U);
}

TEST_F(RendezvousLedger, NodeThatOutlivesTheDaemonKnowsTheCommittedStep) {
    job.run_elastic({"a", "b"}, 512);
    job.step(Restarted{});
    job.silence("b");
    job.join("a", Job::offer_of("a"), report_of(NodeState::running, 600, 600));
    job.pass(seconds(9));
    job.suspend({"a"}, 600);
    job.resumed("a", 601);
    EXPECT_EQ(incident().lost_steps, 0U);
    EXPECT_FALSE(incident().lost_at_least);
}

// For example a standby that was in an earlier round.
TEST_F(RendezvousLedger, StepsOfDeadWorkersAreLostEvenIfAnotherNodeHasAnOlderState) {
    job.run_elastic({"a", "b"}, 512);
    a_dies_at(513);
    job.tell("b", report_of(NodeState::stopped, 512, 400));
    job.resumed("a", 401);
    EXPECT_EQ(incident().lost_steps, 113U);
}

TEST_F(RendezvousLedger, FailureThatEndsTheJobIsNoRecovery) {
    JobPolicy policy = policy_of(1, 3);
    policy.restarts_max = 1;
    begin(policy, {"a", "b"});
    job.run_elastic({"a", "b"}, 10);
    for (int time = 0; time < 2; ++time) {
        job.fail("a", crash_on("a"));
        job.now += milliseconds(4);
        job.suspend({"b"}, 10);
        job.resumed("a", 11);
    }
    const Goodput& goodput = job.verdict().goodput;
    EXPECT_EQ(goodput.count, 1U);
    EXPECT_EQ(goodput.lost, incident().total());
    EXPECT_EQ(goodput.lost_at_end, milliseconds(4));
}

TEST_F(RendezvousLedger, LostStepsAreCountedOnce) {
    job.run_elastic({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 1);
    for (const std::string node : {"a", "b"}) {
        job.tell(node, report_of(NodeState::running, 512, 100));
    }
    all_die(512);
    job.pass(milliseconds(200));
    job.resumed("a", 1);
    EXPECT_EQ(incident().lost_steps, 100U);
    EXPECT_EQ(job.core.status(job.now).goodput.lost_steps, 612U);
}

TEST_F(RendezvousLedger, LateResumedOfARoundThatContinuedLosesNoSteps) {
    job.run_elastic({"a", "b"}, 512);
    job.fail("a", crash_on("a"));
    job.suspend({"b"}, 512);
    job.run_elastic({"b"}, 515);
    job.resumed("a", 513);
    EXPECT_EQ(incident().lost_steps, 0U);
    EXPECT_THAT(describe(incident()), Not(HasSubstr("to do again")));
    job.run_elastic({"a", "b"}, 516);
    EXPECT_EQ(job.core.status(job.now).step, 516U);
}

TEST_F(RendezvousLedger, LostStepsOfARoundCutShortAreReportedByTheNext) {
    job.run_elastic({"a", "b"}, 512);
    all_die(512);
    all_die(512);
    job.pass(milliseconds(200));
    job.clear();
    job.resumed("a", 1);
    EXPECT_EQ(job.times_told<Recovered>("a"), 2U);
    EXPECT_EQ(incident().lost_steps, 512U);
    EXPECT_EQ(job.core.status(job.now).goodput.lost_steps, 512U);
}

}  // namespace
}  // namespace regroup::rendezvous
