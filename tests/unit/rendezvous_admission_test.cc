// SPDX-License-Identifier: Apache-2.0
//
// Which nodes may join a job.
#include <gtest/gtest.h>

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
    };
    for (const Case& one : cases) {
        Job job(small_policy());
        job.join("a");
        JobPolicy policy = small_policy();
        one.change(policy);
        job.join("b", policy, Job::offer_of("b"), {});
        ASSERT_NE(job.told<Refused>("b"), nullptr) << one.field;
        EXPECT_EQ(job.told<Refused>("b")->code, Errc::invalid_argument);
        EXPECT_EQ(job.told<Refused>("b")->reason, std::string("node b contradicts node a: ") +
                                                      one.field + "; give all nodes the same");
        EXPECT_EQ(job.core.nodes_count(), 1U);
    }
}

TEST(RendezvousAdmission, NodeWithoutWorkersOrWithTooManyIsRefused) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.workers = 0;
    job.join("a", offer);
    ASSERT_NE(job.told<Refused>("a"), nullptr);
    EXPECT_EQ(job.told<Refused>("a")->reason, "node a offers 0 workers; it must be 1 to 4096");
    offer.workers = 4'000'000'000U;
    job.clear();
    job.join("a", offer);
    EXPECT_NE(job.told<Refused>("a"), nullptr);
}

TEST(RendezvousAdmission, SlotOutsideTheWorldIsRefused) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.slot = 3;
    job.join("a", offer);
    ASSERT_NE(job.told<Refused>("a"), nullptr);
    EXPECT_EQ(job.told<Refused>("a")->reason, "--node-rank 3 of node a is outside --nnodes 2:3");
}

TEST(RendezvousAdmission, TwoLiveNodesCannotClaimOneSlot) {
    Job job(small_policy());
    Offer offer = Job::offer_of("a");
    offer.slot = 1;
    job.join("a", offer);
    offer.name = "b";
    job.join("b", offer);
    ASSERT_NE(job.told<Refused>("b"), nullptr);
    EXPECT_EQ(job.told<Refused>("b")->reason, "node b and node a both claim --node-rank 1");
    job.join("a", offer);  // The same node again, over a new connection, is no contradiction.
    EXPECT_EQ(job.told<Refused>("a"), nullptr);
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

TEST(RendezvousAdmission, MoreNodesThanTheLimitAreRefusedAsOverload) {
    Job job(small_policy());
    for (std::size_t i = 0; i < RendezvousCore::kNodesLimit; ++i) {
        job.join("n" + std::to_string(i), Job::offer_of("a"));
    }
    job.join("one too many", Job::offer_of("z"));
    ASSERT_NE(job.told<Refused>("one too many"), nullptr);
    EXPECT_EQ(job.told<Refused>("one too many")->code, Errc::overloaded);
    EXPECT_EQ(job.core.nodes_count(), RendezvousCore::kNodesLimit);
}

TEST(RendezvousAdmission, ReasonOfARoundStaysShortWhenManyNodesJoin) {
    JobPolicy policy = small_policy();
    policy.nodes_max = 2000;
    Job job(policy);
    job.join("a");
    job.join("b");
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
    ASSERT_NE(job.told<Stop>("a"), nullptr);
    EXPECT_LT(describe(job.told<Stop>("a")->reason).size(), 500U);
}

TEST(RendezvousAdmission, SituationTellsInOneSentenceWhyTheJobWaits) {
    Job job(small_policy());
    EXPECT_EQ(describe(job.core.situation(job.now)), "0 of 2 nodes ready, waiting for 2 more");
    job.join("a");
    job.join("b");
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
    job.stop("ops", "maintenance");
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

}  // namespace
}  // namespace regroup::rendezvous
