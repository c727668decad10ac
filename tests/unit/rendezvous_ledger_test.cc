// SPDX-License-Identifier: Apache-2.0
//
// What the ledger says of a recovery: how long it took, and what was lost.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

class RendezvousLedger : public RendezvousPlanned {
   protected:
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

}  // namespace
}  // namespace regroup::rendezvous
