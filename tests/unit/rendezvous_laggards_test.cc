// SPDX-License-Identifier: Apache-2.0
//
// Who leaves saves the same step as all others who do, although a loss has come in the middle of a
// commit; or nothing, if others have gone on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class RendezvousLaggards : public RendezvousPlanned {
   protected:
    /// Of `restarts`, one may be used; on a worker of c something goes wrong.
    void begin_with(std::uint32_t nodes_min, std::uint32_t restarts = 5) {
        JobPolicy policy = policy_of(nodes_min, 3);
        policy.restarts_max = restarts;
        begin(policy, {"a", "b", "c"});
    }
    void crash_of_c(std::uint64_t step) {
        NodeReport failed = Job::resident_report(RoundId{1}, NodeState::stopped, step);
        failed.failure = crash_on("c");
        job.tell("c", failed);
        ASSERT_EQ(job.core.phase(), Phase::stopping);
    }
    static NodeReport leaver(std::uint64_t step, bool uneven = false) {
        NodeReport report = Job::resident_report(RoundId{1}, NodeState::stopped, step);
        report.uneven = uneven;
        report.draining = "stopped by SIGTERM";
        return report;
    }
    /// Round 2 trains, b in it, and only then b is told to leave: at a boundary.
    void expect_leave_of_b_in_round_2() {
        ASSERT_EQ(job.core.round(), RoundId{2});
        EXPECT_EQ(job.assignment("b").round, RoundId{2});
        job.run_resident({"a", "c"}, 11);
        NodeReport trains = Job::resident_report(RoundId{2}, NodeState::running, 11);
        trains.draining = "stopped by SIGTERM";
        job.clear();
        job.tell("b", trains);
        EXPECT_EQ(job.told<Prepare>("b"), nullptr);
        job.resumed("a", 12);
        ASSERT_NE(job.told<Prepare>("b"), nullptr);
        EXPECT_EQ(job.told<Prepare>("b")->round, RoundId{2});
        EXPECT_TRUE(job.told<Prepare>("b")->leave);
    }
};

TEST_F(RendezvousLaggards, WhoseWorkersHaveComeToDifferentStepsTakesPartInOneMoreRound) {
    begin_with(1);
    crash_of_c(11);
    job.park({"a"}, 11);
    job.tell("b", leaver(11, true));
    expect_leave_of_b_in_round_2();
}

TEST_F(RendezvousLaggards, WhoseWorkersAreBehindThoseOfAnotherNodeTakesPartInOneMoreRound) {
    begin_with(1);
    crash_of_c(11);
    job.tell("b", leaver(10));  // The furthest of all says so last.
    job.park({"a"}, 11);
    expect_leave_of_b_in_round_2();
}

TEST_F(RendezvousLaggards, WhoHasComeFurtherThanThoseWhoStayTakesPartInOneMoreRound) {
    begin_with(1);
    crash_of_c(10);
    job.tell("b", leaver(11));
    job.park({"a"}, 10);
    expect_leave_of_b_in_round_2();
}

TEST_F(RendezvousLaggards, WhoWasOnTheWayToTheBoundaryTakesPartInOneMoreRound) {
    begin_with(1);
    leave("b");
    ASSERT_EQ(job.core.phase(), Phase::preparing);
    crash_of_c(11);
    job.tell("b", leaver(11, true));
    job.park({"a"}, 11);
    expect_leave_of_b_in_round_2();
}

TEST_F(RendezvousLaggards, WhoseStateIsOfARoundThatOthersHaveLeftBehindSavesNothing) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.disconnect("b");
    job.pass(seconds(1));
    job.park({"a"}, 11);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run_resident({"a", "c"}, 11);
    job.resumed("a", 12);
    job.join("b", Job::offer_of("b"), Job::resident_report(RoundId{1}, NodeState::stopped, 11));
    job.clear();
    job.drain("b");
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
    EXPECT_TRUE(job.told<Prepare>("b")->stale);
}

TEST_F(RendezvousLaggards, WhoHasOnlyPartOfWhatTheJobHasSavesNothing) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.disconnect("b");
    job.pass(seconds(1));
    job.park({"a"}, 11);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run_resident({"a", "c"}, 11);  // Its first step takes long.
    NodeReport back = Job::resident_report(RoundId{1}, NodeState::stopped, 11);
    job.join("b", Job::offer_of("b"), back);
    job.clear();
    job.drain("b");
    EXPECT_FALSE(job.told<Prepare>("b")->stale);
    back.uneven = true;
    job.tell("b", back);
    EXPECT_TRUE(job.told<Prepare>("b")->stale);
}

TEST_F(RendezvousLaggards, WhoIsDrainedWhileNoRoundCanBeLeavesWithWhatItHas) {
    begin_with(3);
    job.leave("c");
    job.park({"a"}, 11);
    job.park({"b"}, 10);
    ASSERT_EQ(job.core.phase(), Phase::gathering);
    job.clear();
    job.drain("b");
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
    EXPECT_FALSE(job.told<Prepare>("b")->stale);
}

// Also one with a new process that had yet to say what it is when the round ended.
TEST_F(RendezvousLaggards, WhoIsDrainedDuringARestTakesPartInTheRoundThatFollows) {
    for (const bool resident : {true, false}) {
        begin_with(1);
        // The second end without progress is followed by a rest.
        for (std::uint64_t number = 1; number <= 3; ++number) {
            ASSERT_EQ(job.core.round(), RoundId{number});
            job.run_resident({"a", "b", "c"}, 11);
            NodeReport failed = Job::resident_report(RoundId{number}, NodeState::stopped, 11);
            failed.failure = crash_on("c");
            job.tell("c", failed);
            NodeReport b =
                Job::resident_report(RoundId{number}, NodeState::stopped, resident ? 11 : 10);
            b.uneven = resident;
            b.resident = resident;
            job.tell("b", b);
            job.park({"a"}, 11);
        }
        ASSERT_EQ(job.core.phase(), Phase::gathering);
        job.clear();
        job.drain("b");
        EXPECT_EQ(job.told<Prepare>("b"), nullptr);
        job.pass(seconds(5));
        ASSERT_EQ(job.core.round(), RoundId{4});
        EXPECT_EQ(job.assignment("b").round, RoundId{4});
    }
}

TEST_F(RendezvousLaggards, WhoWasLostAndIsBackToLeaveTakesPartInTheRoundThatIsAwaited) {
    begin_with(2);
    for (const char* node : {"b", "c"}) {
        job.disconnect(node);
    }
    job.pass(seconds(1));
    job.park({"a"}, 11);
    ASSERT_EQ(job.core.phase(), Phase::gathering);
    job.clear();
    job.join("b", Job::offer_of("b"), leaver(10));
    job.pass(seconds(5));
    EXPECT_EQ(job.told<Prepare>("b"), nullptr);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("b").round, RoundId{2});
}

TEST_F(RendezvousLaggards, WhoWasLostAndIsBackToLeaveTakesPartAlsoWhileTheRoundStillStops) {
    begin_with(1);
    crash_of_c(11);
    job.killed("b");
    job.join("b", Job::offer_of("b"), Job::resident_report(RoundId{1}, NodeState::stopped, 11));
    ASSERT_EQ(job.core.phase(), Phase::stopping);
    job.clear();
    job.tell("b", leaver(11, true));
    EXPECT_EQ(job.told<Prepare>("b"), nullptr);
    job.park({"a"}, 11);
    expect_leave_of_b_in_round_2();
}

TEST_F(RendezvousLaggards, WhoHasComeAsFarAsAllOthersLeavesAtOnce) {
    begin_with(1);
    crash_of_c(11);
    job.tell("b", leaver(11));
    job.clear();
    job.park({"a"}, 11);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.told<Assign>("b"), nullptr);
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
}

TEST_F(RendezvousLaggards, AllWhoWereToLeaveTakePartInOneMoreRoundWhichCostsNothing) {
    begin_with(3, 0);
    leave("b");
    ASSERT_TRUE(job.told<Prepare>("a")->leave);
    crash_of_c(11);
    job.tell("b", leaver(10));
    job.park({"a"}, 11);
    ASSERT_FALSE(job.core.verdict().has_value());
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
    expect_leave_of_b_in_round_2();
    for (const char* node : {"a", "b", "c"}) {
        EXPECT_TRUE(job.told<Prepare>(node)->leave) << node;
        job.leave(node);
    }
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
}

TEST_F(RendezvousLaggards, IfThatRoundBreaksAllLeaveWithWhatTheyHave) {
    for (const bool lost : {true, false}) {
        begin_with(3, 0);
        job.drain("b");
        crash_of_c(11);
        NodeReport b = leaver(10);
        b.draining.clear();
        job.tell("b", b);
        job.park({"a"}, 11);
        ASSERT_EQ(job.core.round(), RoundId{2});
        if (lost) {
            job.leave("c");
        } else {
            NodeReport failed = Job::resident_report(RoundId{2}, NodeState::stopped, 11);
            failed.failure = crash_on("c");
            job.tell("c", failed);
        }
        for (const char* node : {"a", "b"}) {
            job.tell(node, Job::resident_report(RoundId{2}, NodeState::stopped, 11));
        }
        ASSERT_TRUE(job.core.verdict().has_value());
        EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
        EXPECT_EQ(job.core.verdict()->author, "node b");
        EXPECT_THAT(job.core.verdict()->reason, Not(HasSubstr("same step")));
    }
}

TEST_F(RendezvousLaggards, ThereIsNoneAfterAFailureThatTryingAgainCannotHelp) {
    JobPolicy policy = policy_of(3, 3);
    policy.on_exit = {{64, Reaction::fail}};
    begin(policy, {"a", "b", "c"});
    job.drain("b");
    NodeReport failed = Job::resident_report(RoundId{1}, NodeState::stopped, 11);
    failed.failure = error_on("c", 64);
    job.tell("c", failed);
    job.park({"b"}, 10);
    job.park({"a"}, 11);
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
    EXPECT_THAT(job.core.verdict()->reason,
                HasSubstr("exited with code 64; not all have come to the same step"));
}

TEST_F(RendezvousLaggards, IfItBreaksBeforeAllHaveOneStepThereAreUpToThree) {
    begin_with(3, 0);
    job.drain("b");
    crash_of_c(11);
    NodeReport b = leaver(11, true);
    b.draining.clear();
    job.tell("b", b);
    job.park({"a"}, 11);
    for (std::uint64_t round = 2; round <= 4; ++round) {
        ASSERT_EQ(job.core.round(), RoundId{round});
        ASSERT_FALSE(job.core.verdict().has_value());
        NodeReport failed = Job::resident_report(RoundId{round}, NodeState::stopped, 11);
        failed.failure = crash_on("c");
        job.tell("c", failed);
        job.tell("a", Job::resident_report(RoundId{round}, NodeState::stopped, 11));
        b.round = RoundId{round};
        job.tell("b", b);
        job.pass(seconds(60));  // Rounds that end too soon are begun more slowly.
    }
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
    EXPECT_THAT(job.core.verdict()->reason,
                AllOf(HasSubstr("; meanwhile "), EndsWith("; not all have come to the same step")));
}

TEST_F(RendezvousLaggards, WhoTakesPartInARoundThatCannotBeRepeatedIsLetGo) {
    begin_with(2);
    job.leave("a");
    job.park({"b"}, 10);
    job.park({"c"}, 11);
    ASSERT_EQ(job.core.round(), RoundId{2});
    NodeReport b = Job::resident_report(RoundId{2}, NodeState::running, 11);
    b.uneven = true;
    job.tell("b", b);
    NodeReport parked = b;
    parked.state = NodeState::stopped;
    parked.draining = "stopped by SIGTERM";
    job.disconnect("c");
    job.tell("b", parked);
    job.clear();
    job.leave("c");
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
}

TEST_F(RendezvousLaggards, AllWhoAreToLeaveDoSoWithWhatTheyHaveIfThereCanBeNoRound) {
    begin_with(3);
    leave("b");
    job.tell("b", leaver(10));
    job.park({"a"}, 11);
    job.leave("c");
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
}

}  // namespace
}  // namespace regroup::rendezvous
