// SPDX-License-Identifier: Apache-2.0
//
// Rounds that hang, and the ledger of incidents.
#include <gtest/gtest.h>

#include "rendezvous/core/hang_culprit.h"
#include "rendezvous/core/incident_ledger.h"
#include "tests/unit/rendezvous_hang_job.h"

namespace regroup::rendezvous {
namespace {

TEST(HangCulprit, RankOutsideTheCollectiveIsTheCulprit) {
    const RankPosition positions[] = {
        position_at(0, 7, 3, true, "all_reduce"), position_at(1, 7, 3, true, "all_reduce"),
        position_at(2, 7, 2, false, "load"), position_at(3, 7, 3, true, "all_reduce")};
    const auto culprit = find_culprit(positions, 0);
    ASSERT_TRUE(culprit.has_value());
    EXPECT_EQ(culprit->rank, 2U);
    EXPECT_EQ(*culprit, "rank 2 is in load at step 7; the others wait for it");
}

TEST(HangCulprit, AmongEqualsTheRankThatDoesNotWaitIsTheCulprit) {
    const RankPosition positions[] = {position_at(0, 7, 3, true), position_at(1, 7, 3, false),
                                      position_at(2, 8, 0, false)};
    EXPECT_EQ(find_culprit(positions, 0)->rank, 1U);
}

TEST(HangCulprit, AmongEqualsTheReportedRankIsTheCulprit) {
    const RankPosition positions[] = {position_at(0, 0, 0, false), position_at(1, 0, 0, false),
                                      position_at(2, 0, 0, false)};
    EXPECT_EQ(find_culprit(positions, 1)->rank, 1U);
}

TEST(HangCulprit, RankThatWaitsFurtherBehindIsTheCulprit) {
    const RankPosition positions[] = {position_at(0, 7, 3, true),
                                      position_at(1, 7, 2, true, "barrier")};
    const auto culprit = find_culprit(positions, 0);
    ASSERT_TRUE(culprit.has_value());
    EXPECT_EQ(culprit->rank, 1U);
    EXPECT_EQ(
        *culprit,
        "rank 1 is in barrier at step 7, 2 collectives into its round; others are further ahead");
}

TEST(HangCulprit, NoCulpritIfAllRanksWaitAtTheSamePlace) {
    const RankPosition positions[] = {position_at(0, 7, 3, true), position_at(1, 7, 3, true)};
    EXPECT_FALSE(find_culprit(positions, 0).has_value());
    EXPECT_FALSE(find_culprit({}, 0).has_value());
    EXPECT_FALSE(find_culprit(std::span(positions).first(1), 1).has_value());
}

TEST_F(RendezvousHang, StacksAreSavedThenTheCulpritIsEndedAndTheRoundStops) {
    NodeReport a = hanging(0);
    job.tell("a", a);
    ASSERT_NE(job.told<SaveStacks>("a"), nullptr);
    EXPECT_EQ(job.heard<SaveStacks>("b").reason, "rank 0 stands still");
    EXPECT_EQ(describe(job.core.situation(job.now)),
              "round 1 hangs: rank 0 stands still; stacks are being saved");
    answer(a, 1,
           {position_at(0, 10, 5, true, "all_reduce"), position_at(1, 10, 5, true, "all_reduce")});
    job.tell("a", a);
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);  // Its stacks are not saved yet.
    NodeReport b = Job::elastic_report(RoundId{1}, NodeState::running, 10);
    answer(b, 1, {position_at(2, 10, 5, true, "all_reduce"), position_at(3, 10, 4, false, "load")});
    job.tell("b", b);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
    EXPECT_EQ(job.heard<EndWorker>("b").reason,
              "rank 3 is in load at step 10; the others wait for it");
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
    EXPECT_EQ(job.core.phase(), Phase::training);

    b.state = NodeState::stopped;
    b.failure = crash_on("b", SIGKILL);
    b.failure->kind = FailureKind::hang;
    b.failure->rank = 3;
    job.tell("b", b);
    EXPECT_EQ(job.heard<Stop>("a").reason, "rank 3 on b hung and was ended");
    job.suspend({"a"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousHang, DaemonWaitsOnlyBrieflyForStacks) {
    job.tell("a", hanging(1));
    job.pass(seconds(7));
    EXPECT_EQ(job.heard<EndWorker>("a").rank, 1U);
    EXPECT_GT(job.times_told<EndWorker>("a"), 1U);  // Until it obeys.
}

TEST_F(RendezvousHang, WaitingRankIsNotBlamedWhenOthersDoNotAnswer) {
    NodeReport a = Job::elastic_report(job.core.round(), NodeState::running, 10);
    job.tell("b", hanging(3));
    a.alarm = job.heard<SaveStacks>("a").alarm;
    a.positions = {position_at(0, 10, 5, true, "all_reduce"),
                   position_at(1, 10, 5, true, "all_reduce")};
    job.tell("a", a);
    job.pass(seconds(7));
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
}

TEST_F(RendezvousHang, RoundStopsEvenIfTheCulpritIsNotEndedInTime) {
    job.tell("a", hanging(1));
    job.pass(seconds(17));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.suspend({"a", "b"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousHang, SharedHangCountsOnceEveryMemberReportsIt) {
    job.tell("a", hanging(0, true));
    EXPECT_EQ(job.told<SaveStacks>("a"), nullptr);
    job.tell("b", hanging(2, true));
    EXPECT_NE(job.told<SaveStacks>("a"), nullptr);
    EXPECT_NE(job.told<SaveStacks>("b"), nullptr);
}

TEST_F(RendezvousHang, WithdrawnHangHasNoEffect) {
    job.tell("a", hanging(0));
    job.run_elastic({"a"}, 11);
    job.pass(seconds(30));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
}

TEST_F(RendezvousHang, NodeThatMissedAnAlarmIsToldAgain) {
    NodeReport a = hanging(0);
    job.tell("a", a);
    NodeReport b = Job::elastic_report(RoundId{1}, NodeState::running, 10);
    job.clear();
    job.disconnect("b");  // The messages on its connection are lost too.
    job.join("b", policy(), Job::offer_of("b"), b);
    EXPECT_EQ(job.heard<SaveStacks>("b").alarm, 1U);
    job.clear();
    job.tell("b", b);
    EXPECT_NE(job.told<SaveStacks>("b"), nullptr);
    answer(b, 1, {position_at(2, 10, 5, true), position_at(3, 10, 4, false, "load")});
    job.clear();
    job.tell("b", b);
    EXPECT_EQ(job.told<SaveStacks>("b"), nullptr);
    answer(a, 1, {position_at(0, 10, 5, true), position_at(1, 10, 5, true)});
    job.tell("a", a);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
}

TEST_F(RendezvousHang, AnswerToAnEarlierAlarmIsIgnored) {
    NodeReport a = hanging(0);
    job.tell("a", a);
    a.hang.reset();
    answer(a, 1, {position_at(0, 10, 5, true), position_at(1, 10, 5, true)});
    NodeReport b = Job::elastic_report(RoundId{1}, NodeState::running, 10);
    answer(b, 1, {position_at(2, 10, 4, false, "load"), position_at(3, 10, 5, true)});
    job.tell("a", a);  // It makes progress again, before its answer about the stacks arrives.
    job.tell("b", b);
    a.hang = hanging(0).hang;
    a.step = 500;
    b.step = 500;
    job.clear();
    job.tell("a", a);
    ASSERT_EQ(job.times_told<SaveStacks>("b"), 1U);
    EXPECT_EQ(job.heard<SaveStacks>("b").alarm, 2U);
    answer(a, 2, {position_at(0, 500, 4, false, "load"), position_at(1, 500, 5, true)});
    job.tell("a", a);
    job.beat("b");  // Sent before the node got the question.
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
    answer(b, 2, {position_at(2, 500, 5, true), position_at(3, 500, 5, true)});
    job.tell("b", b);
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    EXPECT_EQ(job.heard<EndWorker>("a").rank, 0U);
}

TEST_F(RendezvousHang, AnswerToAnEarlierAlarmBlamesNobodyWhenNoAnswerComes) {
    job.tell("a", hanging(0));
    job.run_elastic({"a"}, 11);  // It makes progress again.
    NodeReport b = Job::elastic_report(RoundId{1}, NodeState::running, 500);
    answer(b, 1, {position_at(2, 10, 4, false, "load"), position_at(3, 10, 5, true)});
    job.tell("b", b);
    NodeReport a = hanging(0);
    job.tell("a", a);
    answer(a, 2, {position_at(0, 500, 4, false, "load"), position_at(1, 500, 5, true)});
    job.tell("a", a);
    job.pass(seconds(7));
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    ASSERT_NE(job.told<EndWorker>("a"), nullptr);
}

TEST_F(RendezvousHang, NoWorkerIsEndedOrBlamedIfAllWaitForEachOther) {
    all_wait_for_each_other();
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "round 1 hangs: rank 0 stands still; all ranks wait for each other");
}

TEST_F(RendezvousHang, LastHangClosesTheJobWithTheCodeOfAKilledWorker) {
    JobPolicy no_restarts = policy();
    no_restarts.restarts_max = 0;
    begin(no_restarts);
    all_wait_for_each_other();
    job.report("a", NodeState::stopped);
    job.report("b", NodeState::stopped);
    ASSERT_EQ(job.core.phase(), Phase::closed);
    EXPECT_EQ(job.verdict().exit_code, 128 + SIGKILL);
    EXPECT_NE(job.told<Closed>("a"), nullptr);  // It could be decoded.
}

TEST_F(RendezvousHang, NoWaitingWorkerIsEndedBecauseItsNodeDoesNotAnswer) {
    job.tell("a", hanging(0, true));
    job.tell("b", hanging(2, true));
    ASSERT_NE(job.told<SaveStacks>("a"), nullptr);
    job.pass(seconds(7));
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    EXPECT_EQ(job.core.phase(), Phase::ending);
}

// ---- The ledger.

TEST_F(RendezvousHang, RecoveryIsReportedToAllMembersWithItsStages) {
    job.join("c");  // A standby.
    job.tell("c", Job::elastic_report(RoundId::none, NodeState::stopped));
    job.cut_off("b");
    job.pass(milliseconds(200));
    job.now += milliseconds(7);
    job.suspend({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.now += milliseconds(6);
    job.clear();
    job.resumed("a", 11);
    const Incident& incident = job.heard<Recovered>("c").incident;
    EXPECT_EQ(incident.round, RoundId{1});
    EXPECT_EQ(incident.next_round, RoundId{2});
    EXPECT_FALSE(incident.planned);
    EXPECT_EQ(incident.decision, "standby c took slot 1");
    EXPECT_EQ(incident.detect, milliseconds(200));
    EXPECT_EQ(incident.decide, Duration::zero());
    EXPECT_EQ(incident.stop, milliseconds(7));
    EXPECT_EQ(incident.communicator, milliseconds(3));
    EXPECT_EQ(incident.total(), milliseconds(213));
    EXPECT_EQ(incident.step, 11U);
    const Incident recovered = incident;
    job.clear();
    job.resumed("a", 11);
    // The node repeats Resumed, since it has not got the answer.
    EXPECT_EQ(job.heard<Recovered>("a").incident, recovered);
    EXPECT_EQ(job.told<Recovered>("c"), nullptr);
    job.step(StopRequested{"ops", "enough"});
    EXPECT_EQ(job.verdict().goodput.lost, milliseconds(213));
    EXPECT_EQ(job.verdict().goodput.count, 1U);
    EXPECT_EQ(job.verdict().goodput.lasted, milliseconds(213));
}

TEST_F(RendezvousHang, PlannedChangeLosesOnlyTheTimeAfterTheBoundary) {
    Job grown(small_policy());
    grown.join_all({"a", "b"});
    grown.pass(seconds(5));
    grown.run_elastic({"a", "b"}, 10);
    grown.join("c", Job::offer_of("c"), Job::elastic_report(RoundId::none, NodeState::stopped));
    grown.pass(seconds(5));
    ASSERT_EQ(grown.core.phase(), Phase::changing);
    grown.now += milliseconds(900);
    grown.suspend({"a"}, 12);
    grown.now += milliseconds(2);
    grown.suspend({"b"}, 12);
    grown.resumed("a", 13);
    ASSERT_NE(grown.told<Recovered>("a"), nullptr);
    const Incident& incident = grown.told<Recovered>("a")->incident;
    EXPECT_TRUE(incident.planned);
    EXPECT_EQ(incident.stop, milliseconds(2));
    EXPECT_EQ(incident.decision, "grown to 3 nodes: node c took slot 2");
    EXPECT_EQ(incident.total(), milliseconds(8));
}

TEST_F(RendezvousHang, RoundsWithoutResumedHaveRecoveredWhenAllNodesRun) {
    Job plain(small_policy());
    plain.join_all({"a", "b"});
    plain.pass(seconds(5));
    plain.run({"a", "b"});
    plain.fail("b", crash_on("b"));
    plain.now += milliseconds(30);
    plain.report("a", NodeState::stopped);
    plain.run({"a"});
    EXPECT_EQ(plain.told<Recovered>("a"), nullptr);
    plain.now += milliseconds(5);
    plain.run({"b"});
    ASSERT_NE(plain.told<Recovered>("a"), nullptr);
    const Incident& incident = plain.told<Recovered>("a")->incident;
    EXPECT_EQ(incident.stop, milliseconds(30));
    EXPECT_EQ(incident.first_step, milliseconds(5));
    EXPECT_EQ(incident.decision, "started again on node b");
    EXPECT_EQ(describe(incident),
              "restarted in 35.0 ms: rank 0 on b was ended by SIGSEGV; started again on node b "
              "(detect 0.0, decide 0.0, stop 30.0, join 0.0, start 5.0)");
}

// New processes must start first, and report only then.
TEST_F(RendezvousHang, RoundOfNewProcessesReportsWhereItBeganIfEarlierRoundsDid) {
    job.pass(seconds(1));
    job.killed("a");
    job.killed("b");
    job.pass(seconds(4));
    job.join_all({"c", "d"});
    job.pass(seconds(5));
    ASSERT_EQ(job.core.round(), RoundId{2});
    job.run({"c", "d"});
    EXPECT_EQ(job.told<Recovered>("c"), nullptr);
    job.resumed("c", 1);
    EXPECT_EQ(job.heard<Recovered>("c").incident.step, 1U);
    EXPECT_EQ(job.heard<Recovered>("c").incident.lost_steps, 10U);
}

TEST_F(RendezvousHang, RoundWhoseResumedIsLostHasRecoveredAtItsStep) {
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    job.run_elastic({"a", "b"}, 10);
    job.pass(seconds(2));
    EXPECT_EQ(job.told<Recovered>("a"), nullptr);
    job.run_elastic({"a"}, 11);
    job.pass(seconds(3));
    EXPECT_EQ(job.heard<Recovered>("a").incident.first_step, seconds(2));
}

TEST_F(RendezvousHang, RoundThatEndsBeforeItsFirstStepIsASeparateIncident) {
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    job.run_elastic({"a", "b"}, 10);
    job.now += milliseconds(40);
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    ASSERT_EQ(job.core.round(), RoundId{3});
    job.run_elastic({"a", "b"}, 10);
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    job.pass(milliseconds(130));  // The second quick failure in a row is followed by a back-off.
    ASSERT_EQ(job.core.round(), RoundId{4});
    job.clear();
    job.resumed("a", 11);
    EXPECT_EQ(job.times_told<Recovered>("a"), 3U);
    const JobStatus status = job.core.status(job.now);
    ASSERT_EQ(status.incidents.size(), 3U);
    EXPECT_EQ(status.incidents[0].first_step, milliseconds(40));
    EXPECT_EQ(status.incidents[0].decision, "started again on node b");
    EXPECT_TRUE(status.incidents[0].cut_short);
    EXPECT_TRUE(status.incidents[1].cut_short);
    EXPECT_FALSE(status.incidents[2].cut_short);
    EXPECT_EQ(status.goodput.count, 3U);
    EXPECT_EQ(status.goodput.cut_short, 2U);
    EXPECT_EQ(describe(status.incidents[0]),
              "not recovered after 40.0 ms: rank 0 on b was ended by SIGSEGV; started again on "
              "node b; round 2 ended before its first step (detect 0.0, decide 0.0, stop 0.0, join "
              "0.0, communicator 0.0, state 0.0, end 40.0)");
    EXPECT_GE(status.incidents[2].decide, milliseconds(75));
    EXPECT_EQ(status.incidents[2].total(), milliseconds(130));
}

TEST_F(RendezvousHang, JobThatEndsBeforeTheFirstStepStillReportsItsIncident) {
    job.fail("b", crash_on("b"));
    job.suspend({"a"}, 10);
    job.run_elastic({"a", "b"}, 10);
    job.now += milliseconds(40);
    job.clear();
    job.report("a", NodeState::finished);
    EXPECT_EQ(job.told<Recovered>("b"), nullptr);
    job.report("b", NodeState::finished);
    const Incident& incident = job.heard<Recovered>("b").incident;
    EXPECT_EQ(incident.first_step, milliseconds(40));
    // The end of the next round does not count for this incident.
    EXPECT_EQ(incident.total(), milliseconds(40));
    EXPECT_FALSE(incident.cut_short) << "no step was left to be done";
    EXPECT_EQ(incident.decision, "started again on node b");
    EXPECT_EQ(job.heard<Closed>("b").verdict.goodput.count, 1U);
    EXPECT_EQ(job.heard<Closed>("b").verdict.goodput.cut_short, 0U);
}

Succession in_words(const char* words) {
    Succession succession;
    succession.told = words;
    return succession;
}

TEST(IncidentLedger, ChangeWhoseRoundEndsBeforeItsFirstStepIsNotComplete) {
    IncidentLedger ledger;
    const Instant began = Instant{} + seconds(1);
    ledger.begin(RoundId{1}, true, began, began);
    ledger.at_boundary(began);
    ledger.stopped(began + milliseconds(2), "node c joined");
    ledger.formed(began + milliseconds(3), RoundId{2},
                  in_words("grown to 3 nodes: node c took slot 2"));
    const Instant failed = began + milliseconds(10);
    ledger.begin(RoundId{2}, false, failed, failed);
    ledger.stopped(failed, "rank 2 on c exited with code 1");
    ledger.formed(failed, RoundId{3}, in_words("started again on node c"));
    const std::vector<Incident> told = ledger.running(failed + milliseconds(5), 7);
    ASSERT_EQ(told.size(), 2U);
    EXPECT_TRUE(told[0].planned);
    EXPECT_TRUE(told[0].cut_short);
    EXPECT_EQ(told[0].step, 0U);
    EXPECT_EQ(describe(told[0]),
              "change not complete after 10.0 ms: node c joined; grown to 3 nodes: node c took "
              "slot 2; round 2 ended before its first step (detect 0.0, decide 0.0, stop 2.0, join "
              "1.0, communicator 0.0, state 0.0, end 7.0)");
    EXPECT_FALSE(told[1].cut_short);
    EXPECT_EQ(describe(told[1]).substr(0, 20), "recovered in 5.0 ms:");
    EXPECT_EQ(ledger.goodput().count, 2U);
    EXPECT_EQ(ledger.goodput().cut_short, 1U);
}

TEST(IncidentLedger, IncidentWithoutANextRoundIsReportedAsSuch) {
    Incident incident;
    incident.round = RoundId{4};
    incident.cut_short = true;
    incident.cause = "node b is lost";
    EXPECT_EQ(describe(incident).substr(0, 65),
              "not recovered after 0.0 ms: node b is lost; no round took its pla");
}

TEST(IncidentLedger, LedgerKeepsTheLastHundredIncidentsAndTheSumOfAll) {
    IncidentLedger ledger;
    Instant now = Instant{} + seconds(1);
    for (std::uint64_t round = 1; round <= 150; ++round) {
        ledger.begin(RoundId{round}, false, now, now);
        now += milliseconds(1);
        ledger.stopped(now, "x");
        ledger.formed(now, RoundId{round + 1}, in_words("y"));
        EXPECT_EQ(ledger.running(now, round).size(), 1U);
    }
    EXPECT_EQ(ledger.recent().size(), IncidentLedger::kRecentLimit);
    EXPECT_EQ(ledger.recent().front().round, RoundId{51});
    EXPECT_EQ(ledger.goodput().lost, milliseconds(150));
    EXPECT_EQ(ledger.goodput().count, 150U);
    EXPECT_EQ(ledger.goodput().cut_short, 0U);
}

}  // namespace
}  // namespace regroup::rendezvous
