// SPDX-License-Identifier: Apache-2.0
//
// What the ledger says of a recovery: how long it took, and what was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RendezvousLedger : public RendezvousPlanned {
   protected:
    RendezvousLedger() {
        JobPolicy policy = policy_of(1, 3);
        policy.restarts_max = 10;
        begin(policy, {"a", "b"});
    }
    NodeReport report_of(NodeState state, std::uint64_t step, std::uint64_t held) const {
        NodeReport report = Job::resident_report(job.core.round(), state, step);
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
    const Incident& incident() {
        const auto* told = job.told<Recovered>("a");
        ENSURE(told != nullptr);
        return told->incident;
    }
    Resumed resumed_at(std::uint64_t step) const {
        return {job.core.round(), step, milliseconds(3), milliseconds(2), milliseconds(1)};
    }
};

// ---- How long it took.

TEST_F(RendezvousLedger, TheTimeThatAFreshProcessNeedsToComeToItsRoundIsPartOfTheTotal) {
    job.fail("a", crash_on("a"));
    job.now += milliseconds(4);
    job.park({"b"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(2006);
    job.resumed("a", 11);  // It knows of 6 ms only.
    EXPECT_EQ(incident().total(), milliseconds(2010));
    EXPECT_EQ(incident().stop, milliseconds(4));
    EXPECT_EQ(incident().join, milliseconds(2000));
    EXPECT_EQ(incident().communicator, milliseconds(3));
    EXPECT_EQ(incident().state, milliseconds(2));
    EXPECT_EQ(incident().first_step, milliseconds(1));
    EXPECT_EQ(job.core.status(job.now).lost, milliseconds(2010));
}

TEST_F(RendezvousLedger, WhatTheNewRoundHasSeenItselfIsNeverTakenAway) {
    job.fail("a", crash_on("a"));
    job.park({"b"}, 10);
    job.now += milliseconds(1);  // Less than the 6 ms of which it speaks.
    job.resumed("a", 11);
    EXPECT_EQ(incident().join, Duration::zero());
    EXPECT_EQ(incident().total(), milliseconds(6));
}

TEST_F(RendezvousLedger, AWordThatWasHeldUpDoesNotMakeTheRecoveryLonger) {
    job.fail("a", crash_on("a"));
    job.park({"b"}, 10);
    job.now += milliseconds(1900);
    Resumed late = resumed_at(11);
    late.ago = milliseconds(1600);
    job.step(NodeResumed{"a", late});
    EXPECT_EQ(incident().total(), milliseconds(300));
    EXPECT_EQ(incident().join, milliseconds(294));
}

TEST_F(RendezvousLedger, ARestBeforeTheRoundAndTheStartOfItsProcessesAreToldApart) {
    job.silence("b");
    job.disconnect("b");
    job.pass(milliseconds(200));
    job.park({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(50);
    job.resumed("a", 11);
    EXPECT_EQ(incident().detect, milliseconds(200));
    EXPECT_EQ(incident().decide, Duration::zero());
    EXPECT_EQ(incident().join, milliseconds(44));
    EXPECT_EQ(incident().total(), milliseconds(250));
}

// ---- What was lost.

TEST_F(RendezvousLedger, AStepOfWhichNoProcessHasKeptTheStateIsToldAsLost) {
    job.run_resident({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 1);
    EXPECT_EQ(incident().lost_steps, 512U);
    EXPECT_THAT(
        describe(incident()),
        HasSubstr("started again on node a; no process had kept the state: back from step 512 "
                  "to step 0 (512 steps to do again) (detect"));
    EXPECT_EQ(job.core.status(job.now).step, 1U);
    EXPECT_EQ(job.core.status(job.now).lost_steps, 512U);
    job.stop("ops", "enough");
    EXPECT_EQ(job.core.verdict()->lost_steps, 512U);
}

TEST_F(RendezvousLedger, WhatACheckpointHadIsNotLost) {
    job.run_resident({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 501);
    EXPECT_EQ(incident().lost_steps, 12U);
    EXPECT_THAT(describe(incident()), HasSubstr("back from step 512 to step 500 (12 steps"));
}

TEST_F(RendezvousLedger, WhatIsLostOnceIsNotLostAgain) {
    job.run_resident({"a", "b"}, 512);
    all_die(512);
    job.resumed("a", 1);
    for (const std::string node : {"a", "b"}) {
        job.tell(node, report_of(NodeState::running, 512, 100));
    }
    all_die(512);
    job.pass(milliseconds(200));
    job.resumed("a", 1);
    EXPECT_EQ(incident().lost_steps, 100U);
    EXPECT_EQ(job.core.status(job.now).lost_steps, 612U);
}

TEST_F(RendezvousLedger, OneWhoseRoundHasGoneOnByTheTimeOfItsWordHasLostNothing) {
    job.run_resident({"a", "b"}, 512);
    job.fail("a", crash_on("a"));
    job.park({"b"}, 512);
    job.run_resident({"b"}, 515);
    job.resumed("a", 513);
    EXPECT_EQ(incident().lost_steps, 0U);
    EXPECT_THAT(describe(incident()), Not(HasSubstr("to do again")));
    job.run_resident({"a", "b"}, 516);
    EXPECT_EQ(job.core.status(job.now).step, 516U);
}

TEST_F(RendezvousLedger, OfARoundThatEndedBeforeItsFirstStepTheNextOneSaysWhatWasLost) {
    job.run_resident({"a", "b"}, 512);
    all_die(512);
    all_die(512);
    job.pass(milliseconds(200));
    job.clear();
    job.resumed("a", 1);
    EXPECT_EQ(job.times_told<Recovered>("a"), 2U);
    EXPECT_EQ(incident().lost_steps, 512U);
    EXPECT_EQ(job.core.status(job.now).lost_steps, 512U);
}

}  // namespace
}  // namespace regroup::rendezvous
