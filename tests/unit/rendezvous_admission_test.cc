// SPDX-License-Identifier: Apache-2.0
//
// Which nodes may join a job.
#include <gmock/gmock.h>

#include "rendezvous/core/failure_detector.h"
#include "rendezvous/core/message_bytes.h"
#include "rendezvous/core/round_claim.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

TEST(RendezvousAdmission, ContradictionsNameBothNodesAndTheField) {
    struct Case {
        void (*change)(JobPolicy&);
        const char* field;
    };
    const Case cases[] = {
        {[](JobPolicy& p) { p.nodes_max = 4; }, "--nnodes is 2:4 here, 2:3 there"},
        {[](JobPolicy& p) { p.nodes_min = 1; }, "--nnodes is 1:3 here, 2:3 there"},
        {[](JobPolicy& p) { p.program = "eval"; }, "the program is eval here, train there"},
        {[](JobPolicy& p) { p.restarts_max = 9; }, "--max-restarts is 9 here, 1 there"},
        {[](JobPolicy& p) { p.last_call = seconds(9); }, "--last-call is 9.0 s here, 5.0 s there"},
        {[](JobPolicy& p) { p.heartbeat_timeout = seconds(9); },
         "--heartbeat-timeout is 9.0 s here, 3.0 s there"},
        {[](JobPolicy& p) { p.shutdown_timeout = seconds(9); },
         "--shutdown-timeout is 9.0 s here, 10 s there"},
        {[](JobPolicy& p) { p.grow_after = seconds(9); },
         "--grow-after is 9.0 s here, 5.0 s there"},
        {[](JobPolicy& p) { p.rank_order = RankOrder::topology; },
         "--rank-order is topology here, auto there"},
    };
    for (const Case& one : cases) {
        Job job(small_policy());
        job.join("a");
        JobPolicy policy = small_policy();
        one.change(policy);
        job.join("b", policy, Job::offer_of("b"), {});
        EXPECT_EQ(job.heard<Refused>("b").code, Errc::invalid_argument);
        EXPECT_EQ(job.heard<Refused>("b").reason, std::string("node b contradicts node a: ") +
                                                      one.field + "; give all nodes the same");
        EXPECT_EQ(job.core.nodes_count(), 1U);
    }
}

TEST(RendezvousAdmission, NodeWithoutWorkersOrWithTooManyIsRefused) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.workers = 0;
    job.join("a", offer);
    EXPECT_EQ(job.heard<Refused>("a").reason, "node a offers 0 workers; it must be 1 to 4096");
    offer.workers = 4'000'000'000U;
    job.clear();
    job.join("a", offer);
    EXPECT_NE(job.told<Refused>("a"), nullptr);
}

TEST(RendezvousAdmission, WaitingNodesHearOfOneRefusedJoinInASecond) {
    Job job(small_policy());
    job.join("a");
    job.clear();
    const Instant due = job.core.next_deadline();
    const auto refuse = [&](const std::string& node) {
        JobPolicy policy = small_policy();
        policy.nodes_max = 9;
        job.step(NodeJoined{node, policy, Job::offer_of(node), {}});
        ASSERT_NE(job.told<Refused>(node), nullptr);
    };
    for (int i = 0; i < 1000; ++i) {
        refuse("burst" + std::to_string(i));
    }
    EXPECT_EQ(job.times_told<Waiting>("a"), 1U);
    ASSERT_TRUE(job.heard<Waiting>("a").detail.refusal);
    EXPECT_EQ(job.heard<Waiting>("a").detail.refusal->node, "burst0");
    job.now += seconds(1);
    refuse("later");
    EXPECT_EQ(job.times_told<Waiting>("a"), 2U);
    EXPECT_EQ(job.heard<Waiting>("a").detail.refusal->node, "later");
    EXPECT_EQ(job.core.next_deadline(), due) << "a journal has no refused joins";
}

// ---- Another job of the same id.

Offer offer_with_command(const std::string& name, const std::string& command) {
    Offer offer = Job::offer_of(name);
    offer.command = command;
    return offer;
}

TEST(RendezvousAdmission, SecondNodeOfAJobOfOneIsAnotherJob) {
    for (const char* command : {"one", "two"}) {
        Job job(fixed_policy(1));
        job.join("a", offer_with_command("a", "one"));
        job.run({"a"});
        JobPolicy policy = fixed_policy(1);
        policy.program = "eval";
        policy.restarts_max = 9;
        job.join("b", policy, offer_with_command("b", command), {});
        EXPECT_EQ(job.heard<Refused>("b").code, Errc::invalid_argument);
        EXPECT_EQ(job.heard<Refused>("b").reason.kind, Refusal::Kind::other_job);
        EXPECT_EQ(job.heard<Refused>("b").reason.other, "a");
        EXPECT_EQ(job.heard<Refused>("b").reason.same_command, command == std::string("one"));
        EXPECT_EQ(job.core.nodes_count(), 1U);
    }
}

TEST(RendezvousAdmission, JobOfTheUsualNameTakesOnlyNodesOfItsCommand) {
    const auto offer = [](const std::string& name, const std::string& command) {
        Offer made = offer_with_command(name, command);
        made.same_command_only = true;
        return made;
    };
    JobPolicy policy = fixed_policy(3);
    policy.nodes_min = 1;
    Job job(policy);
    job.join("a", offer("a", "one"));  // Round 1 is not formed yet.
    job.join("b", offer("b", "two"));
    EXPECT_EQ(job.heard<Refused>("b").reason.kind, Refusal::Kind::other_command);
    EXPECT_EQ(job.heard<Refused>("b").reason.other, "a");
    EXPECT_THAT(describe(job.heard<Refused>("b").reason), testing::HasSubstr("--rdzv-id"));
    job.join("c", offer("c", "one"));
    EXPECT_EQ(job.told<Refused>("c"), nullptr);
    Offer placed = offer("d", "two");  // It has a rank by --node-rank, as each line differs then.
    placed.slot = 2;
    job.join("d", placed);
    EXPECT_EQ(job.told<Refused>("d"), nullptr);
    job.join("e", offer_with_command("e", "three"));  // The job has a name for it.
    EXPECT_EQ(job.told<Refused>("e"), nullptr);
}

TEST(RendezvousAdmission, JobOfOneHasAStandbyOfTheSameCommandIfItAsksForOne) {
    JobPolicy policy = fixed_policy(1);
    policy.standbys_max = 1;
    Job job(policy);
    job.join("a", offer_with_command("a", "one"));
    job.run({"a"});
    job.join("b", offer_with_command("b", "one"));
    EXPECT_TRUE(job.heard<Waiting>("b").standby);
    EXPECT_FALSE(job.heard<Waiting>("b").other_command);
    job.join("c", offer_with_command("c", "two"));
    EXPECT_NE(job.told<Refused>("c"), nullptr);
}

TEST(RendezvousAdmission, NodeThatGoesIsReplacedInAJobOfOne) {
    using Go = void (*)(Job&);
    const Go ways[] = {
        [](Job& job) { job.disconnect("a"); }, [](Job& job) { job.drain("a"); },
        [](Job& job) { job.step(Restarted{}); },
        [](Job& job) { job.now += job.core.policy().heartbeat_timeout / 2; },  // Silent.
    };
    for (const Go go : ways) {
        Job job(fixed_policy(1));
        job.join("a", offer_with_command("a", "one"));
        job.run({"a"});
        go(job);
        job.join("b", offer_with_command("b", "one"));
        EXPECT_EQ(job.told<Refused>("b"), nullptr);
        EXPECT_EQ(job.core.nodes_count(), 2U);
    }
}

TEST(RendezvousAdmission, NodeOfWhichNoCommandIsKnownWaitsAsBefore) {
    Job job(fixed_policy(1));
    job.join("a", offer_with_command("a", "one"));
    job.run({"a"});
    job.join("old");
    EXPECT_EQ(job.told<Refused>("old"), nullptr);
    EXPECT_FALSE(job.heard<Waiting>("old").other_command);
}

TEST(RendezvousAdmission, StandbyWithACommandThatNoMemberRunsIsToldSo) {
    Job job(fixed_policy(2));
    job.join("a", offer_with_command("a", "one"));
    job.join("b", offer_with_command("b", "two"));  // Each node may have arguments of its own.
    job.run({"a", "b"});
    job.join("same", offer_with_command("same", "two"));
    job.join("other", offer_with_command("other", "three"));
    job.join("third", offer_with_command("third", "three"));
    EXPECT_FALSE(job.heard<Waiting>("same").other_command);
    EXPECT_TRUE(job.heard<Waiting>("other").other_command);
    EXPECT_TRUE(job.heard<Waiting>("third").other_command);
    job.report("a", NodeState::finished);
    job.report("b", NodeState::finished);
    ASSERT_EQ(job.core.phase(), Phase::closed);
    EXPECT_FALSE(job.heard<Closed>("a").missed);
    EXPECT_FALSE(job.heard<Closed>("same").missed);
    EXPECT_TRUE(job.heard<Closed>("other").missed);
    job.join("late", offer_with_command("late", "one"));
    EXPECT_TRUE(job.heard<Closed>("late").missed);
}

// ---- Identity.

Offer offer_with_secret(const std::string& name, const std::string& secret) {
    Offer offer = Job::offer_of(name);
    offer.secret = secret;
    return offer;
}

TEST(RendezvousAdmission, JoinOfAKnownNodeWithAnotherSecretChangesNothing) {
    Job job(fixed_policy(1));
    job.join("a", offer_with_secret("a", "one"));
    job.run({"a"});
    job.clear();
    EXPECT_FALSE(job.core.is_proven("a", offer_with_secret("a", "two")));
    EXPECT_FALSE(job.core.is_proven("a", offer_with_secret("a", "")));
    EXPECT_TRUE(job.core.is_proven("a", offer_with_secret("elsewhere", "one")));
    EXPECT_TRUE(job.core.is_proven("b", offer_with_secret("b", "two")));
    const Offer stranger = offer_with_secret("stranger", "two");
    job.step(NodeJoined{"a", fixed_policy(1), stranger, {}});
    EXPECT_TRUE(job.log.empty());
    EXPECT_EQ(job.core.status(job.now).nodes[0].name, "a");
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST(RendezvousAdmission, SecretCountsWhileTheConnectionIsAwayAndAfterARestart) {
    Job job(fixed_policy(1));
    job.join("a", offer_with_secret("a", "one"));
    job.run({"a"});
    job.disconnect("a");
    EXPECT_FALSE(job.core.is_proven("a", offer_with_secret("a", "two")));
    job.step(Restarted{});
    EXPECT_FALSE(job.core.is_proven("a", offer_with_secret("a", "two")));
    EXPECT_TRUE(job.core.is_proven("a", offer_with_secret("a", "one")));
}

TEST(RendezvousAdmission, NoRefusalNamesTheIdOfAnotherNode) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.slot = 1;
    job.join("secret-id", offer);
    job.join("b", offer);
    EXPECT_EQ(job.heard<Refused>("b").reason,
              "node a and another node of that name both claim --node-rank 1");
    JobPolicy policy = small_policy();
    policy.nodes_max = 9;
    job.join("c", policy, Job::offer_of("a"), {});
    EXPECT_EQ(describe(job.heard<Refused>("c").reason).find("secret-id"), std::string::npos);
}

// ---- What a node takes.

TEST(RendezvousAdmission, NodeThatWasInNoRoundIsForgottenWithItsConnection) {
    JobPolicy policy = small_policy();
    policy.regroup_window = policy.heartbeat_timeout = kHeartbeatTimeoutMax;
    Job job(policy);
    job.join("a");
    EXPECT_GT(job.core.nodes_bytes(), 0U);
    job.disconnect("a");
    EXPECT_EQ(job.core.nodes_count(), 0U);
    EXPECT_EQ(job.core.nodes_bytes(), 0U);
    job.join("a");  // Its next connection joins it again.
    job.join_all({"b", "c"});
    EXPECT_NE(job.told<Assign>("a"), nullptr);
}

TEST(RendezvousAdmission, NodeThatOnlyClaimsARoundIsForgottenSoonAfterItsConnection) {
    JobPolicy policy = small_policy();
    policy.regroup_window = policy.heartbeat_timeout = kHeartbeatTimeoutMax;
    Job job(policy);
    NodeReport claim;
    claim.round = RoundId{5};
    claim.held_step = 7;
    job.join("a", Job::offer_of("a"), claim);
    job.disconnect("a");
    job.silence("a");
    EXPECT_EQ(job.core.nodes_count(), 1U);
    job.pass(FailureDetector::kReturnCycle);
    EXPECT_EQ(job.core.nodes_count(), 0U);
}

TEST(RendezvousAdmission, MemberWhoseConnectionBreaksStaysUntilItsTimeIsOver) {
    JobPolicy policy = fixed_policy(2);
    policy.regroup_window = policy.heartbeat_timeout;
    Job job(policy);
    job.join_all({"a", "b"});
    job.run({"a", "b"});
    job.disconnect("a");
    EXPECT_EQ(job.core.nodes_count(), 2U);
}

TEST(RendezvousAdmission, BytesOfANodeFollowItsLastReport) {
    Job job(fixed_policy(1));
    job.join("a");
    job.run({"a"});
    const std::size_t before = job.core.nodes_bytes();
    NodeReport report{job.core.round(), NodeState::running, 2000, {}};
    report.draining = std::string(4000, 'x');
    job.tell("a", report);
    EXPECT_GE(job.core.nodes_bytes(), before + 4000);
    job.run({"a"});
    EXPECT_EQ(job.core.nodes_bytes(), before);
    job.leave("a");
    EXPECT_EQ(job.core.nodes_bytes(), 0U);
}

TEST(RendezvousAdmission, ReportWithoutDetailsIsSmallAndSaysTheSame) {
    NodeReport report{RoundId{1}, NodeState::stopped, 2000, crash_on("a")};
    report.failure->start_error = report.failure->last_output = std::string(16000, 'x');
    report.draining = "\xE2\x98\x83" + std::string(252, 'x') + "\xE2\x98\x83";
    report.positions.resize(256);
    report.broken_links.resize(16);
    remove_details(report);
    EXPECT_LT(bytes_of(report), 3000U);
    EXPECT_EQ(report.failure->signal, SIGSEGV);
    EXPECT_FALSE(report.failure->start_error.empty());
    EXPECT_EQ(report.draining, "\xE2\x98\x83" + std::string(252, 'x'));
}

TEST(RendezvousAdmission, SlotOutsideTheWorldIsRefused) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.slot = 3;
    job.join("a", offer);
    EXPECT_EQ(job.heard<Refused>("a").reason, "--node-rank 3 of node a is outside --nnodes 2:3");
}

TEST(RendezvousAdmission, TwoLiveNodesCannotClaimOneSlot) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.slot = 1;
    job.join("a", offer);
    offer.name = "b";
    job.join("b", offer);
    EXPECT_EQ(job.heard<Refused>("b").reason, "node b and node a both claim --node-rank 1");
    job.join("a", offer);  // The same node again, over a new connection, is no contradiction.
    EXPECT_EQ(job.told<Refused>("a"), nullptr);
}

TEST(RendezvousAdmission, PodThatReplacesOneThatStillEndsMayTryAgain) {
    Job job(fixed_policy(2));
    Offer offer = Job::offer_of("pod-1");
    offer.slot = 1;
    job.join("old", offer);
    job.join("new", offer);
    EXPECT_EQ(job.heard<Refused>("new").code, Errc::overloaded);
    offer.name = "stranger";
    job.join("stranger", offer);
    EXPECT_EQ(job.heard<Refused>("stranger").code, Errc::invalid_argument);

    job.leave("old");
    offer.name = "pod-1";
    job.join("newest", offer);
    EXPECT_EQ(job.told<Refused>("newest"), nullptr);
}

TEST(RendezvousAdmission, SlotOfASilentNodeMayBeClaimed) {
    Job job(fixed_policy(2));
    Offer offer = Job::offer_of("a");
    offer.slot = 1;
    job.join("a", offer);
    job.join("b");
    job.run({"a", "b"});
    job.disconnect("a");
    job.silence("a");
    job.join("a2", offer);
    EXPECT_EQ(job.told<Refused>("a2"), nullptr);
    job.pass(milliseconds(500));
    job.confirm_stopped({"b"});
    EXPECT_EQ(job.assignment("a2").group_rank, 1U);
}

TEST(RendezvousAdmission, ReasonOfARoundStaysShortWhenManyNodesJoin) {
    JobPolicy policy = small_policy();
    policy.nodes_max = 2000;
    Job job(policy);
    job.join_all({"a", "b"});
    job.pass(seconds(5));
    job.run({"a", "b"});
    for (int i = 0; i < 1000; ++i) {
        const std::string name = "late" + std::to_string(i);
        job.join(name, Job::offer_of(name));
        job.silence(name);
    }
    job.clear();
    job.now += seconds(5);
    (void)job.core.step(job.now, NodeReported{"a", {RoundId{1}, NodeState::running, 2000, {}}});
    job.pass(milliseconds(1));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    EXPECT_LT(describe(job.heard<Stop>("a").reason).size(), 500U);
}

TEST(RendezvousAdmission, SituationTellsInOneSentenceWhyTheJobWaits) {
    Job job(small_policy());
    EXPECT_EQ(describe(job.core.situation(job.now)), "0 of 2 nodes ready, waiting for 2 more");
    job.join_all({"a", "b"});
    EXPECT_EQ(describe(job.core.situation(job.now)),
              "2 nodes ready (minimum 2, maximum 3), last call for 5.0 s");
    job.join("c");
    EXPECT_EQ(describe(job.core.situation(job.now)), "round 1 is running on 3 nodes");
    job.run({"a", "b", "c"});
    job.fail("b", crash_on("b"));
    EXPECT_EQ(describe(job.core.situation(job.now)),
              "round 1 is stopping because rank 0 on b was ended by SIGSEGV; waiting for a, c for "
              "25 s");
    EXPECT_EQ(describe(job.core.situation(job.now + seconds(90))),
              "round 1 is stopping because rank 0 on b was ended by SIGSEGV; waiting for a, c for "
              "0 ms");
    job.step(StopRequested{"ops", "maintenance"});
    EXPECT_EQ(describe(job.core.situation(job.now)), "closed by ops: maintenance");
}

TEST(RendezvousAdmission, PhasesHaveNames) {
    EXPECT_EQ(to_string(Phase::forming), "forming");
    EXPECT_EQ(to_string(Phase::training), "training");
    EXPECT_EQ(to_string(Phase::changing), "changing");
    EXPECT_EQ(to_string(Phase::ending), "ending");
    EXPECT_EQ(to_string(Phase::closed), "closed");
}

TEST(RendezvousAdmission, NodeThatClaimsAnImpossibleRoundIsRefusedAndTheJobGoesOn) {
    Job job(fixed_policy(2));
    NodeReport report;
    report.round = RoundId{(std::uint64_t{1} << 52U) + 1};
    job.join("stranger", Job::offer_of("stranger"), report);
    ASSERT_NE(job.told<Refused>("stranger"), nullptr);
    // The last one that is accepted.
    report.round = RendezvousCore::kRoundClaimMax;
    job.join("far", Job::offer_of("far"), report);
    job.join("a");
    ASSERT_NE(job.told<Assign>("a"), nullptr);  // Every message could be decoded.
    EXPECT_GT(job.core.round(), RendezvousCore::kRoundClaimMax);
}

TEST(RendezvousAdmission, DaemonsThatMeetAnOlderJobOneAfterTheOtherGiveOtherNumbers) {
    const auto number_given = [](std::int64_t began_ms) {
        RendezvousCore core(fixed_policy(1), began_ms);
        NodeReport report;
        report.round = RoundId{41};
        static_cast<void>(
            core.step(Instant(), NodeJoined{"a", fixed_policy(1), Job::offer_of("a"), report}));
        return number(core.round());
    };
    EXPECT_EQ(number_given(0), 142U);
    EXPECT_EQ(number_given(5), 642U);
    EXPECT_EQ(number_given(1), number_given(998));  // They never skip far.
}

TEST(RendezvousAdmission, MemberOfARoundBeyondEveryClaimComesBack) {
    Job job(fixed_policy(2));
    NodeReport report;
    report.round = RendezvousCore::kRoundClaimMax;
    job.join("far", Job::offer_of("far"), report);
    job.join("a");
    ASSERT_GT(job.core.round(), RendezvousCore::kRoundClaimMax);
    job.disconnect("a");
    report.round = job.core.round();
    report.state = NodeState::running;
    job.join("a", Job::offer_of("a"), report);
    EXPECT_EQ(job.told<Refused>("a"), nullptr);
}

TEST(RendezvousAdmission, ClaimsNeverReachTheLastNumberAndFollowTheClock) {
    EXPECT_EQ(round_claim_max(-1), RoundId::none);
    EXPECT_EQ(round_claim_max(5), RoundId{5});
    constexpr std::int64_t kYearMs = std::int64_t{366} * 24 * 3600 * 1000;
    EXPECT_LT(round_claim_max(1000 * kYearMs), RoundId{std::uint64_t{1} << 50U});
    EXPECT_EQ(round_claim_max(INT64_MAX), RendezvousCore::kRoundClaimMax);
}

TEST(RendezvousAdmission, MemberThatReportsARoundThatNoDaemonHasGivenIsFenced) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    job.report("a", NodeState::running);
    job.report("b", NodeState::running);
    const RoundId round = job.core.round();
    job.report("b", NodeState::stopped, RoundId{number(round) + 1000});
    EXPECT_NE(job.told<Fenced>("b"), nullptr);
    job.report("b", NodeState::running, round);
    EXPECT_EQ(job.core.round(), round);
}

TEST(RendezvousAdmission, NodeThatReportsAnImpossibleRoundIsFencedAndTheOthersGoOn) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    job.report("a", NodeState::running);
    job.report("b", NodeState::running);
    job.report("b", NodeState::stopped, RoundId{(std::uint64_t{1} << 52U) + 1});
    EXPECT_NE(job.told<Fenced>("b"), nullptr);
    EXPECT_EQ(job.core.phase(), Phase::training);
    // It is lost like a silent node, and another one takes its place.
    job.silence("b");
    job.pass(seconds(4));
    job.report("a", NodeState::stopped);
    job.clear();
    job.join("c");
    EXPECT_NE(job.told<Assign>("a"), nullptr);
    EXPECT_NE(job.told<Assign>("c"), nullptr);
}

}  // namespace
}  // namespace regroup::rendezvous
