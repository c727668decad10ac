// SPDX-License-Identifier: Apache-2.0
//
// Changes of rounds whose workers keep their processes: growth, drains, spares; and restarts of the
// daemon.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

class RendezvousPlanned : public testing::Test {
   protected:
    RendezvousPlanned() { begin(policy_of(1, 3), {"a", "b"}); }
    static JobPolicy policy_of(std::uint32_t nodes_min, std::uint32_t nodes_max) {
        JobPolicy policy = small_policy();
        policy.nodes_min = nodes_min;
        policy.nodes_max = nodes_max;
        policy.spares_max = 1;
        return policy;
    }
    void begin(const JobPolicy& policy, const std::vector<std::string>& nodes) {
        job = Job(policy);
        for (const std::string& node : nodes) {
            job.join(node);
        }
        job.pass(seconds(5));
        job.run_resident(nodes, 10);
        ASSERT_EQ(job.core.phase(), Phase::running);
        job.clear();
    }
    void leave(const std::string& node, const std::string& why = "stopped by SIGTERM") {
        NodeReport report = job.report_of(node);
        report.draining = why;
        job.tell(node, report);
    }
    Job job{policy_of(1, 3)};
};

// ---- Growth.

TEST_F(RendezvousPlanned, ANewNodeStartsItsWorkersBeforeTheRoundIsChangedForIt) {
    job.join("c");
    ASSERT_NE(job.told<Waiting>("c"), nullptr);
    EXPECT_TRUE(job.told<Waiting>("c")->prestart);
    EXPECT_FALSE(job.told<Waiting>("c")->spare);
    job.pass(seconds(10));
    EXPECT_EQ(job.core.phase(), Phase::running);  // Its workers are not there yet.
    job.tell("c", Job::resident_report(RoundId::none, NodeState::stopped));
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    for (const char* node : {"a", "b"}) {
        EXPECT_EQ(job.told<Stop>(node), nullptr);
        ASSERT_NE(job.told<Prepare>(node), nullptr);
        EXPECT_EQ(job.told<Prepare>(node)->round, RoundId{1});
        EXPECT_FALSE(job.told<Prepare>(node)->leave);
        EXPECT_EQ(job.told<Prepare>(node)->reason, "node c joined");
    }
    job.park({"a"}, 20);
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    job.park({"b"}, 20);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 3U);
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
}

TEST_F(RendezvousPlanned, ANodeWhoseWorkersNeverComeIsLetInNevertheless) {
    job.join("c");
    job.pass(seconds(29));
    EXPECT_EQ(job.core.phase(), Phase::running);
    job.pass(seconds(1));
    EXPECT_EQ(job.core.phase(), Phase::preparing);
}

TEST_F(RendezvousPlanned, WorkersThatDoNotKeepTheirProcessesAreStoppedForGrowth) {
    job.run({"b"});
    job.join("c");
    job.pass(seconds(5));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_EQ(job.told<Prepare>("a"), nullptr);
}

TEST_F(RendezvousPlanned, PrepareIsRepeatedToWhoHasMissedIt) {
    leave("b");
    job.clear();
    job.beat("a");
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    EXPECT_FALSE(job.told<Prepare>("a")->leave);
    job.beat("b");
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
}

TEST_F(RendezvousPlanned, AFailureOnTheWayToTheBoundaryIsAFailure) {
    leave("b");
    NodeReport report = Job::resident_report(RoundId{1}, NodeState::stopping, 11);
    report.failure = crash_on("a");
    job.tell("a", report);
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    ASSERT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_EQ(job.told<Stop>("b")->reason, "rank 0 on a was ended by SIGSEGV");
    job.park({"b"});
    report.state = NodeState::stopped;
    job.tell("a", report);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousPlanned, WhoIsLostOnTheWayToTheBoundaryStopsTheOthers) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    leave("b");
    job.silence("c");
    job.disconnect("c");
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_NE(job.told<Stop>("b"), nullptr);
}

TEST_F(RendezvousPlanned, ABoundaryThatIsNotReachedInTimeIsDoneWithout) {
    leave("b");
    job.pass(std::chrono::minutes(2));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    EXPECT_EQ(job.told<Stop>("a")->reason,
              "node b leaves: stopped by SIGTERM, and not all workers reached a step boundary in "
              "time");
}

// ---- Drains.

TEST_F(RendezvousPlanned, TheOthersGoOnWhileALeavingNodeSavesItsState) {
    leave("b");
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
    EXPECT_FALSE(job.told<Prepare>("a")->leave);
    EXPECT_EQ(job.told<Prepare>("a")->reason, "node b leaves: stopped by SIGTERM");
    job.park({"a"}, 12);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 1U);
    EXPECT_EQ(job.told<Stop>("b"), nullptr);
    // Its heartbeats while it saves earn it no Stop, which would forbid it to save.
    job.clear();
    job.pass(seconds(3));
    EXPECT_EQ(job.told<Stop>("b"), nullptr);
    EXPECT_EQ(job.told<Assign>("b"), nullptr);
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::running);
    EXPECT_EQ(job.core.round(), RoundId{2});
}

TEST_F(RendezvousPlanned, ALeavingNodeThatIsQuickerThanTheNewsOfTheBoundaryHarmsNobody) {
    leave("b");
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
    job.park({"a"}, 12);
    EXPECT_EQ(job.core.round(), RoundId{2});
}

TEST_F(RendezvousPlanned, WhoDoesNotParkSoonAfterALeavingNodeHasGoneIsStopped) {
    leave("b");
    job.leave("b");
    job.pass(seconds(1));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
}

TEST_F(RendezvousPlanned, TooFewRemainingMeansThatAllSaveTheirStateAndTheJobMayBeStartedAgain) {
    begin(policy_of(2, 3), {"a", "b"});
    leave("b");
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("a")->leave);
    EXPECT_EQ(job.times_told<Prepare>("b"), 1U);
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    job.pass(seconds(2));  // The other one still saves: it must not be told to stop.
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
    job.leave("a");
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->outcome, Outcome::stopped);
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
    EXPECT_EQ(job.core.verdict()->author, "node b");
    EXPECT_EQ(job.core.verdict()->reason,
              "node b leaves: stopped by SIGTERM; 1 node would be left of at least 2, so all save "
              "their state and leave");
}

TEST_F(RendezvousPlanned, ANodeWithWhichTheRendezvousGoesIsLeftByAll) {
    job = Job(policy_of(1, 3));
    Offer host = Job::offer_of("a");
    host.hosts_rendezvous = true;
    job.join("a", host);
    job.join("b");
    job.pass(seconds(5));
    job.run_resident({"a", "b"}, 10);
    job.clear();
    leave("b");
    EXPECT_FALSE(job.told<Prepare>("a")->leave);  // The other way round all is as ever.
    leave("a");
    EXPECT_TRUE(job.told<Prepare>("a")->leave);
    job.leave("a");
    job.leave("b");
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
    begin(policy_of(1, 3), {"c"});
    job.join("a", host);
    job.join("b");
    job.tell("a", Job::resident_report(RoundId::none, NodeState::stopped));
    job.tell("b", Job::resident_report(RoundId::none, NodeState::stopped));
    job.clear();
    leave("a");  // It waits, but without it the one that trains is alone.
    EXPECT_TRUE(job.told<Prepare>("a")->leave);
    ASSERT_NE(job.told<Prepare>("c"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("c")->leave);
    EXPECT_EQ(job.told<Prepare>("c")->reason,
              "node a leaves: stopped by SIGTERM; the rendezvous goes with it, so all save their "
              "state and leave");
}

TEST_F(RendezvousPlanned, ADrainOnTheLastStepFindsTheJobFinished) {
    begin(policy_of(2, 3), {"a", "b"});
    leave("b");
    for (const char* node : {"a", "b"}) {
        NodeReport report = Job::resident_report(RoundId{1}, NodeState::finished, 12);
        report.draining = "stopped by SIGTERM";
        job.tell(node, report);
    }
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, 0);
}

TEST_F(RendezvousPlanned, ASpareIsEnoughToGoOn) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join("c");
    job.tell("c", Job::resident_report(RoundId::none, NodeState::stopped));
    leave("b");
    EXPECT_FALSE(job.told<Prepare>("a")->leave);
    job.park({"a"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_rank, 1U);
}

TEST_F(RendezvousPlanned, AnOperatorMayDrainByName) {
    EXPECT_TRUE(job.core.knows("b"));
    EXPECT_FALSE(job.core.knows("nobody"));
    job.drain("nobody");
    EXPECT_EQ(job.core.phase(), Phase::running);
    EXPECT_TRUE(job.log.empty());
    job.drain("b");
    EXPECT_EQ(job.core.phase(), Phase::preparing);
    EXPECT_EQ(job.told<Prepare>("a")->reason, "node b is drained by ops: maintenance");
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
    EXPECT_EQ(job.core.status(job.now).nodes[1].place, JobStatus::Place::leaving);
}

TEST_F(RendezvousPlanned, ANodeThatWaitsIsDrainedAtOnce) {
    job.join("c");
    job.drain("c");
    ASSERT_NE(job.told<Prepare>("c"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("c")->leave);
    EXPECT_EQ(job.core.phase(), Phase::running);
    job.pass(seconds(40));
    EXPECT_EQ(job.core.round(), RoundId{1});  // It is not let in any more.
}

TEST_F(RendezvousPlanned, ADrainOfWorkersThatCannotParkStopsTheRound) {
    job.run({"a", "b"});
    job.drain("b");
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    job.report("b", NodeState::stopped);
    job.report("a", NodeState::stopped);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 1U);
    ASSERT_NE(job.told<Prepare>("b"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("b")->leave);
}

// ---- Spares.

TEST_F(RendezvousPlanned, SparesStartTheirWorkersAheadUpToTheNumberThatIsWanted) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join("c");
    job.join("d");
    ASSERT_NE(job.told<Waiting>("c"), nullptr);
    EXPECT_TRUE(job.told<Waiting>("c")->prestart);
    EXPECT_TRUE(job.told<Waiting>("c")->spare);
    job.pass(seconds(2));
    ASSERT_NE(job.told<Waiting>("d"), nullptr);
    EXPECT_FALSE(job.told<Waiting>("d")->prestart);
    job.leave("c");
    EXPECT_TRUE(job.told<Waiting>("d")->prestart);
}

TEST_F(RendezvousPlanned, SparesOfRoundsThatAreNotResidentOnlyWait) {
    begin(policy_of(2, 2), {"a", "b"});
    job.run({"a", "b"});
    job.join("c");
    job.pass(seconds(2));
    ASSERT_NE(job.told<Waiting>("c"), nullptr);
    EXPECT_FALSE(job.told<Waiting>("c")->prestart);
    job.run_resident({"a"});
    job.clear();
    job.run_resident({"b"});  // Now all are.
    ASSERT_NE(job.told<Waiting>("c"), nullptr);
    EXPECT_TRUE(job.told<Waiting>("c")->prestart);
}

TEST_F(RendezvousPlanned, ASpareWhoseWorkersAreStartedTakesThePlaceOfALostNodeAtOnce) {
    begin(policy_of(3, 3), {"a", "b", "c"});
    job.join("d");
    job.join("e");
    job.tell("e", Job::resident_report(RoundId::none, NodeState::stopped));
    job.silence("b");
    job.disconnect("b");
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    job.park({"a", "c"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("e").group_rank, 1U);
    EXPECT_EQ(job.assignment("e").first_rank, 2U);
    EXPECT_EQ(job.assignment("c").first_rank, 4U);
    EXPECT_EQ(job.told<Assign>("d"), nullptr);
}

// ---- Who is under suspicion when a round has ended.

TEST_F(RendezvousPlanned, TheNextRoundWaitsForSurvivorsUnderSuspicionOnly) {
    begin(policy_of(1, 4), {"a", "b", "c"});
    job.join("d");
    job.fail("a", crash_on("a"));
    job.park({"b"});
    job.disconnect("d");  // A stranger to this round.
    job.park({"c"});
    EXPECT_EQ(job.core.round(), RoundId{2});

    begin(policy_of(1, 4), {"a", "b", "c"});
    job.fail("a", crash_on("a"));
    job.park({"b"});
    job.disconnect("b");
    job.silence("b");
    job.park({"c"});
    EXPECT_EQ(job.core.phase(), Phase::last_call);
    job.pass(milliseconds(199));
    EXPECT_EQ(job.core.round(), RoundId{1});
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

// ---- A daemon that comes back.

TEST_F(RendezvousPlanned, AFullRoundOfNewProcessesWaitsForTheOneThatHasTheState) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    NodeReport fresh = Job::resident_report(RoundId{1}, NodeState::stopped, 10);
    fresh.held_step = 0;
    job.disconnect("a");
    job.resident("b", NodeState::running, 10);
    fresh.failure = crash_on("b");
    job.tell("b", fresh);
    EXPECT_EQ(job.core.phase(), Phase::stopping);  // "a" has not parked.
    job.park({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run_resident({"a"}, 20);
    job.tell("b", Job::resident_report(RoundId{2}, NodeState::running));
    job.park({"a"}, 20);
    job.disconnect("a");
    fresh.round = RoundId{2};
    job.tell("b", fresh);
    EXPECT_EQ(job.core.phase(), Phase::gathering);
    EXPECT_EQ(job.core.explain(job.now),
              "2 nodes ready, waiting for a, whose workers alone have the last state, for 200 ms");
    job.park({"a"}, 20);
    EXPECT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(job.assignment("a").round, RoundId{3});
}

TEST_F(RendezvousPlanned, WhoHasTheStateAndIsLostIsNotWaitedForLonger) {
    begin(policy_of(1, 2), {"a", "b"});
    job.join("c");
    job.park({"a"}, 20);
    job.silence("a");
    job.disconnect("a");
    NodeReport fresh = Job::resident_report(RoundId{1}, NodeState::stopped, 10);
    fresh.held_step = 0;
    job.tell("b", fresh);
    EXPECT_EQ(job.core.round(), RoundId{1});
    job.pass(small_policy().regroup_call);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 2U);
}

TEST_F(RendezvousPlanned, ANodeWhoseWorkersStillParkIsWaitedForIfTheyHaveMost) {
    job = Job(policy_of(1, 2));
    job.join("a", Job::offer_of("a"), Job::resident_report(RoundId{7}, NodeState::running, 30));
    job.join("b");
    job.join("c");
    EXPECT_EQ(job.core.phase(), Phase::gathering);
    EXPECT_NE(job.told<Stop>("a"), nullptr);
    job.tell("a", Job::resident_report(RoundId{7}, NodeState::stopped, 30));
    EXPECT_EQ(job.core.phase(), Phase::running);
    EXPECT_EQ(job.assignment("a").group_rank, 0U);
}

TEST_F(RendezvousPlanned, ARestartedDaemonGivesEveryoneTimeToComeBack) {
    job.restart();
    EXPECT_TRUE(job.log.empty());
    job.silence("a");
    job.silence("b");
    job.pass(seconds(8) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::running);
    job.join("a", Job::offer_of("a"), Job::resident_report(RoundId{1}, NodeState::running, 50));
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
    EXPECT_EQ(
        job.told<Stop>("a")->reason,
        "node b is lost: it did not come back within 8.0 s after a restart of the rendezvous");
}

TEST_F(RendezvousPlanned, RoundsGoOnOverARestart) {
    job.restart();
    for (const char* node : {"b", "a"}) {
        job.join(node, Job::offer_of(node),
                 Job::resident_report(RoundId{1}, NodeState::running, 50));
    }
    job.clear();
    job.pass(seconds(60));
    EXPECT_EQ(job.core.phase(), Phase::running);
    EXPECT_EQ(job.core.round(), RoundId{1});
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
}

TEST_F(RendezvousPlanned, ARestartAmidARegroupingWaitsForAllSurvivors) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    job.fail("a", crash_on("a"));
    job.park({"b", "c"});
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.leave("c");
    job.report("a", NodeState::stopped, RoundId{2});
    job.disconnect("b");
    job.park({"b"});
    ASSERT_EQ(job.core.phase(), Phase::running);
    // Once more, and now the daemon dies when both have parked but one is under suspicion.
    job.fail("a", crash_on("a"));
    job.restart();
    job.join("a", Job::offer_of("a"), job.report_of("a"));
    job.pass(seconds(2));
    EXPECT_EQ(job.core.phase(), Phase::stopping);
}

TEST_F(RendezvousPlanned, WhoTriesAgainAtItsSlowestIsNotLostToARestartedDaemon) {
    job.restart();
    for (const char* node : {"a", "b"}) {
        job.silence(node);
    }
    job.pass(milliseconds(7900));
    EXPECT_EQ(job.core.nodes_count(), 2U);
    job.pass(milliseconds(200));
    EXPECT_EQ(job.core.nodes_count(), 0U);
}

TEST_F(RendezvousPlanned, WhatWasPlannedIsNoneOnceSomethingIsLost) {
    begin(policy_of(1, 3), {"a", "b", "c"});
    leave("b");
    job.pass(std::chrono::minutes(2));
    ASSERT_EQ(job.core.phase(), Phase::stopping);
    job.silence("c");
    job.disconnect("c");
    job.pass(milliseconds(200));
    job.park({"a", "b"}, 12);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.resumed("a", 13);
    ASSERT_NE(job.told<Recovered>("a"), nullptr);
    EXPECT_FALSE(job.told<Recovered>("a")->incident.planned);
    EXPECT_NE(job.told<Recovered>("a")->incident.cause.find("node c is lost"), std::string::npos);
}

TEST_F(RendezvousPlanned, WhoComesToWaitHearsSoAtOnce) {
    begin(policy_of(2, 2), {"a", "b"});
    job.join("c");
    job.join("d");
    ASSERT_NE(job.told<Waiting>("d"), nullptr);
    EXPECT_TRUE(job.told<Waiting>("d")->spare);
    job.pass(std::chrono::minutes(2));
    job.clear();
    job.join("e");
    ASSERT_EQ(job.times_told<Waiting>("e"), 1U);
    EXPECT_TRUE(job.told<Waiting>("e")->spare);
    EXPECT_EQ(job.told<Waiting>("d"), nullptr);
    job.disconnect("e");
    job.join("e");
    EXPECT_EQ(job.times_told<Waiting>("e"), 2U);
}

// ---- Who leaves last hands the state over first.

TEST_F(RendezvousPlanned, TheOnlyOneThatHasTheStateLeavesOnceOthersHaveIt) {
    begin(policy_of(1, 3), {"a"});
    job.join("b");
    job.join("c");
    job.clear();
    leave("a");
    ASSERT_EQ(job.core.phase(), Phase::preparing);
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    EXPECT_FALSE(job.told<Prepare>("a")->leave);
    NodeReport parked = Job::resident_report(RoundId{1}, NodeState::stopped, 12);
    parked.draining = "stopped by SIGTERM";
    job.tell("a", parked);
    ASSERT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").group_world_size, 3U);
    NodeReport trains = Job::resident_report(RoundId{2}, NodeState::running, 12);
    trains.draining = parked.draining;
    job.run_resident({"b", "c"}, 12);
    job.clear();
    job.tell("a", trains);
    EXPECT_EQ(job.told<Prepare>("a"), nullptr);
    job.resumed("a", 13);
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("a")->leave);
    EXPECT_FALSE(job.told<Prepare>("b")->leave);
    job.leave("a");
    job.park({"b", "c"}, 14);
    EXPECT_EQ(job.core.round(), RoundId{3});
    EXPECT_EQ(job.assignment("b").group_world_size, 2U);
}

TEST_F(RendezvousPlanned, TooFewWhileARoundStopsMeansThatAllSaveTheirStateInTheNext) {
    begin(policy_of(2, 2), {"a", "b"});
    NodeReport failed = Job::resident_report(RoundId{1}, NodeState::stopped, 10);
    failed.failure = crash_on("b");
    job.tell("b", failed);
    ASSERT_EQ(job.core.phase(), Phase::stopping);
    leave("a");
    NodeReport a = Job::resident_report(RoundId{1}, NodeState::stopped, 10);
    a.draining = "stopped by SIGTERM";
    job.tell("a", a);
    ASSERT_EQ(job.core.round(), RoundId{2});
    a.round = RoundId{2};
    a.state = NodeState::running;
    job.tell("a", a);
    job.run_resident({"b"}, 10);
    job.clear();
    job.resumed("a", 11);
    for (const char* node : {"a", "b"}) {
        ASSERT_NE(job.told<Prepare>(node), nullptr);
        EXPECT_TRUE(job.told<Prepare>(node)->leave);
        job.leave(node);
    }
    ASSERT_TRUE(job.core.verdict().has_value());
    EXPECT_EQ(job.core.verdict()->exit_code, kExitRequeue);
}

TEST_F(RendezvousPlanned, WhoWasKeptForARoundThatCannotBeIsLetGo) {
    begin(policy_of(2, 2), {"a", "b"});
    job.fail("b", crash_on("b"));
    leave("a");
    job.disconnect("b");
    NodeReport a = Job::resident_report(RoundId{1}, NodeState::stopped, 10);
    a.draining = "stopped by SIGTERM";
    job.tell("a", a);
    job.clear();
    job.leave("b");
    ASSERT_NE(job.told<Prepare>("a"), nullptr);
    EXPECT_TRUE(job.told<Prepare>("a")->leave);
}

}  // namespace
}  // namespace regroup::rendezvous
