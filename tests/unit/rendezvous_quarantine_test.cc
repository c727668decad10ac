// SPDX-License-Identifier: Apache-2.0
//
// A bad node without a replacement.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

class RendezvousQuarantine : public ::testing::Test {
   protected:
    /// Nodes that run and are all needed; they wait for 6 s at most.
    void begin(Duration node_failures_window, bool seen_to_run = true,
               const std::vector<std::string>& nodes = {"a", "b"}) {
        JobPolicy policy = fixed_policy(static_cast<std::uint32_t>(nodes.size()));
        policy.restarts_max = 0;
        policy.on_exit[76] = Reaction::replace_node;
        policy.budgets.node_failures_window = node_failures_window;
        job = Job(policy);
        for (const std::string& node : nodes) {
            Offer offer = Job::offer_of(node);
            offer.join_timeout = seconds(6);
            job.join(node, offer);
        }
        if (seen_to_run) {
            job.run(nodes);
        }
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.clear();
    }
    void call_b_bad() {
        job.fail("b", error_on("b", 76));
        job.now += milliseconds(20);
        job.report("a", NodeState::stopped);
    }
    Job job{fixed_policy(2)};
};

TEST_F(RendezvousQuarantine, FailureIsTheVerdictIfNoReplacementComes) {
    begin(seconds(6));
    call_b_bad();
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(milliseconds(5979));
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(milliseconds(1));
    const Verdict& verdict = job.verdict();
    EXPECT_EQ(verdict.outcome, Outcome::failed);
    EXPECT_EQ(verdict.exit_code, 76);
    EXPECT_EQ(verdict.author, "node b");
    EXPECT_EQ(verdict.failure, error_on("b", 76));
    EXPECT_EQ(verdict.reason,
              "rank 0 on b exited with code 76; no other node came within 6.0 s (--join-timeout); "
              "node b is quarantined: it asks for another node");
    EXPECT_NE(job.told<Closed>("a"), nullptr);
    EXPECT_NE(job.told<Closed>("b"), nullptr);
}

TEST_F(RendezvousQuarantine, NodeThatNeverRanHasNotBegunToWait) {
    begin(seconds(60), false);
    job.pass(seconds(30));
    call_b_bad();
    job.pass(seconds(5));
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(seconds(1));
    EXPECT_TRUE(job.core.verdict().has_value());
}

TEST_F(RendezvousQuarantine, LostNodeAndNotTheFailureIsWhyTheJobWaits) {
    begin(seconds(60));
    call_b_bad();
    job.leave("b");
    job.pass(seconds(6));
    EXPECT_FALSE(job.core.verdict().has_value());
}

TEST_F(RendezvousQuarantine, SilentNodeDoesNotCountAsQuarantined) {
    begin(seconds(60), true, {"a", "b", "c"});
    call_b_bad();
    job.report("c", NodeState::stopped);
    job.leave("c");
    job.pass(milliseconds(5900));
    NodeReport was_in_a_round;
    was_in_a_round.round = RoundId{1};
    job.join("d", Job::offer_of("d"), was_in_a_round);
    job.disconnect("d");
    job.silence("d");
    job.pass(milliseconds(100));
    ASSERT_EQ(job.core.nodes_count(), 3U);
    EXPECT_FALSE(job.core.verdict().has_value());
}

TEST_F(RendezvousQuarantine, QuarantinedNodeReturnsIfTheOthersWaitLongEnough) {
    begin(seconds(4));
    call_b_bad();
    job.pass(seconds(4));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_FALSE(job.core.is_quarantined("b"));
    EXPECT_EQ(job.assignment("b").group_world_size, 2U);
}

TEST_F(RendezvousQuarantine, WaitingNodesHearWhichNodeIsQuarantinedAndWhy) {
    begin(seconds(60));
    call_b_bad();
    job.pass(seconds(1));
    EXPECT_EQ(job.heard<Waiting>("a").detail,
              "1 of 2 nodes ready, waiting for 1 more; node b is quarantined for 59 s: rank 0 on b "
              "exited with code 76; it asks for another node");
    EXPECT_THAT(job.heard<Waiting>("a").joined, ElementsAre("a"));
}

TEST_F(RendezvousQuarantine, OperatorReleasesANodeBeforeItsTime) {
    begin(seconds(600));
    call_b_bad();
    job.pass(seconds(1));
    ASSERT_TRUE(job.core.is_quarantined("b"));
    job.step(ReleaseRequested{"c", "ann@login1", "another node"});
    ASSERT_TRUE(job.core.is_quarantined("b"));
    EXPECT_THAT(job.core.job_events(), ::testing::IsEmpty());
    job.clear();

    job.step(ReleaseRequested{"b", "ann@login1", "new memory"});
    EXPECT_FALSE(job.core.is_quarantined("b"));
    ASSERT_THAT(job.core.job_events(), ::testing::Not(::testing::IsEmpty()));
    const JobEvent& event = job.core.job_events().front();
    EXPECT_EQ(event.kind, JobEvent::Kind::released);
    EXPECT_EQ(event.node, "b");
    EXPECT_EQ(std::get<JobEvent::Release>(event.detail).author, "ann@login1");
    job.pass(seconds(1));
    EXPECT_NE(job.told<Assign>("b"), nullptr) << "the job has all its nodes, and goes on";
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST_F(RendezvousQuarantine, JobThatCanHaveNoOtherNodeEndsAtOnce) {
    JobPolicy policy = fixed_policy(1);
    policy.restarts_max = 3;
    policy.on_exit[76] = Reaction::replace_node;
    job = Job(policy);
    Offer offer = Job::offer_of("a");
    offer.alone = true;
    job.join("a", offer);
    job.run({"a"});
    job.fail("a", error_on("a", 76));
    EXPECT_EQ(job.verdict().exit_code, 76);
    EXPECT_EQ(job.verdict().reason,
              "rank 0 on a exited with code 76; it asks for another node than a, and this job can "
              "have no other");
}

}  // namespace
}  // namespace regroup::rendezvous
