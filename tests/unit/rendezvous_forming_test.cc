// SPDX-License-Identifier: Apache-2.0
//
// How a round forms.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

TEST(RendezvousForming, RoundWaitsUntilTheMinimumHasJoined) {
    Job job(small_policy());
    job.join("a");
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(seconds(60));
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_EQ(job.core.round(), RoundId::none);
    job.join("b");
    EXPECT_EQ(job.core.phase(), Phase::forming);
}

TEST(RendezvousForming, RoundFormsExactlyAtTheEndOfTheLastCall) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.pass(seconds(5) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST(RendezvousForming, RoundFormsAtOnceWhenTheMaximumHasJoined) {
    Job job(small_policy());
    job.join_all({"a", "b", "c"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("c").world_size, 6U);
}

TEST(RendezvousForming, RoundNeedsNoLastCallWhenMinimumIsMaximum) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST(RendezvousForming, RoundFormsAtOnceWhenTheLastCallIsZero) {
    JobPolicy policy = small_policy();
    policy.last_call = Duration::zero();
    Job job(policy);
    job.join_all({"a", "b"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST(RendezvousForming, JobGathersAgainWhenTheLastCallLosesTheMinimum) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.leave("b");
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(seconds(10));
    EXPECT_EQ(job.core.phase(), Phase::forming);
}

TEST(RendezvousForming, LastCallContinuesWithoutASuspectedNode) {
    JobPolicy policy = small_policy();
    policy.nodes_max = 4;
    Job job(policy);
    job.join_all({"a", "b", "c"});
    job.pass(seconds(5) - milliseconds(100));
    job.disconnect("c");
    job.silence("c");
    job.pass(milliseconds(100));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
    EXPECT_EQ(job.told<Assign>("c"), nullptr);
}

TEST(RendezvousForming, LastCallEndsInGatheringWhenSuspicionLeavesTooFew) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.pass(seconds(5) - milliseconds(100));
    job.disconnect("b");
    job.silence("b");
    job.pass(milliseconds(100));
    EXPECT_EQ(job.core.phase(), Phase::forming);
}

TEST(RendezvousForming, NodesWithDifferentNumbersOfWorkersGetDenseRanks) {
    Job job(fixed_policy(3));
    Offer offer = Job::offer_of("b");
    offer.workers = 5;
    job.join("b", offer);
    offer = Job::offer_of("a");
    offer.workers = 1;
    job.join("a", offer);
    offer = Job::offer_of("c");
    offer.workers = 3;
    job.join("c", offer);
    EXPECT_EQ(job.assignment("a").first_rank, 0U);
    EXPECT_EQ(job.assignment("b").first_rank, 1U);
    EXPECT_EQ(job.assignment("c").first_rank, 6U);
    for (const char* node : {"a", "b", "c"}) {
        EXPECT_EQ(job.assignment(node).world_size, 9U);
        EXPECT_EQ(job.assignment(node).group_world_size, 3U);
        EXPECT_EQ(job.assignment(node).round, RoundId{1});
        EXPECT_EQ(job.assignment(node).restart_count, 0U);
        EXPECT_EQ(job.assignment(node).reason, "3 nodes joined");
    }
}

TEST(RendezvousForming, AllNodesGetTheStoreOfGroupRankZero) {
    Job job(fixed_policy(2));
    NodeReport report;
    report.store_port = 3111;
    job.join("b", Job::offer_of("b"), report);
    report.store_port = 3222;
    job.join("a", Job::offer_of("a"), report);
    EXPECT_EQ(job.assignment("b").master_addr, "10.0.0.1");
    EXPECT_EQ(job.assignment("b").master_port, 3222);
    EXPECT_EQ(job.assignment("a").master_port, 3222);
}

TEST(RendezvousForming, NodesBeyondTheMaximumBecomeStandbysAndAreToldSo) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b", "c"});
    job.run({"a", "b"});
    job.pass(seconds(2));
    EXPECT_EQ(job.told<Assign>("c"), nullptr);
    EXPECT_TRUE(job.heard<Waiting>("c").standby);
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST(RendezvousForming, StandbysTakePlaceAndRanksOfLostNodes) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b", "s"});
    job.run({"a", "b"});
    job.leave("a");
    job.clear();
    job.confirm_stopped({"b"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("s").first_rank, 0U);
    EXPECT_EQ(job.assignment("b").first_rank, 2U);
    EXPECT_EQ(job.assignment("s").restart_count, 0U);
}

TEST(RendezvousForming, LateNodeIsAdmittedOnceTheRoundIsOldEnough) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.pass(seconds(5));
    job.run({"a", "b"});
    job.pass(seconds(1));
    job.join("c");
    job.clear();
    job.pass(seconds(4) - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.told<Stop>("a"), nullptr);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason, "node c joined");
    job.confirm_stopped({"a", "b"});
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 3U);
    EXPECT_EQ(job.assignment("c").restart_count, 0U);
}

TEST(RendezvousForming, RoundDoesNotGrowOnceANodeHasFinished) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.pass(seconds(5));
    job.run({"a", "b"});
    job.report("a", NodeState::finished);
    job.join("c");
    job.pass(seconds(60));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_TRUE(job.heard<Waiting>("c").standby);  // It has no reason to give up.
}

TEST(RendezvousForming, RoundDoesNotGrowAfterAFinishedNodeIsLost) {
    Job job(small_policy());
    job.join_all({"a", "b"});
    job.pass(seconds(5));
    job.run({"a", "b"});
    job.report("a", NodeState::finished);
    job.leave("a");
    job.join("c");
    job.pass(seconds(60));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.report("b", NodeState::finished);
    EXPECT_EQ(job.core.phase(), Phase::closed);
    EXPECT_EQ(job.verdict().outcome, Outcome::succeeded);
}

TEST(RendezvousForming, SurvivorsContinueWithoutALastCall) {
    Job job(small_policy());
    job.join_all({"a", "b", "c"});
    job.run({"a", "b", "c"});
    job.leave("c");
    job.confirm_stopped({"a", "b"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{2});
}

TEST(RendezvousForming, SurvivorsWaitBrieflyForANodeWhoseConnectionBroke) {
    Job job(small_policy());
    job.join_all({"a", "b", "c"});
    job.run({"a", "b", "c"});
    job.report("c", NodeState::stopped);
    job.confirm_stopped({"a"});
    job.disconnect("c");
    job.confirm_stopped({"b"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.beat("c");  // The node is back: none is missing.
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.core.round(), RoundId{2});
    EXPECT_EQ(job.assignment("c").group_world_size, 3U);
}

TEST(RendezvousForming, SurvivorsContinueAsSoonAsASuspectIsLost) {
    Job job(small_policy());
    job.join_all({"a", "b", "c"});
    job.run({"a", "b", "c"});
    job.report("c", NodeState::stopped);
    job.disconnect("c");
    job.silence("c");
    job.confirm_stopped({"a", "b"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    job.pass(milliseconds(500));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
}

TEST(RendezvousForming, YoungerDaemonContinuesTheRoundNumbersOfTheJob) {
    Job job(fixed_policy(2));
    job.join("a", Job::offer_of("a"), {RoundId{7}, NodeState::running, 2000, {}});
    EXPECT_EQ(job.heard<Stop>("a").round, RoundId{7});
    job.join("b", Job::offer_of("b"), {RoundId{5}, NodeState::stopped, 2000, {}});
    EXPECT_EQ(job.core.phase(), Phase::forming);  // One still has workers.
    job.report("a", NodeState::stopped, RoundId{7});
    EXPECT_EQ(job.core.phase(), Phase::training);
    // A gap, for rounds of which only absent nodes know.
    EXPECT_GT(number(job.core.round()), 100U);
}

TEST(RendezvousForming, RoundEndsWhenAMemberReportsALaterRound) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    job.run({"a", "b"});
    // Its connection was to another daemon meanwhile, which has given it round 9.
    job.join("b", Job::offer_of("b"), {RoundId{9}, NodeState::running, 2000, {}});
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("b").round, RoundId{9});
    job.report("b", NodeState::stopped, RoundId{9});
    job.report("a", NodeState::stopped, RoundId{1});
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_GT(job.core.round(), RoundId{9});
}

TEST(RendezvousForming, RoundOfFourThousandNodesFormsWithoutQuadraticCost) {
    constexpr std::uint32_t kNodes = 4000;
    Job job(fixed_policy(kNodes));
    for (std::uint32_t i = 0; i < kNodes; ++i) {
        const std::string name = "node" + std::to_string(i);
        Offer offer = Job::offer_of("a");
        offer.name = name;
        offer.slot = i;
        job.join(name, offer);
    }
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("node3999").first_rank, 2U * 3999U);
}

TEST(RendezvousForming, HeartbeatsOfWaitingNodesAreAnsweredWithTheSituation) {
    Job job(small_policy());
    job.join("a");
    for (int second = 0; second < 5; ++second) {
        job.clear();
        job.pass(seconds(1));
        ASSERT_EQ(job.times_told<Waiting>("a"), 1U);
        const Waiting& waiting = *job.told<Waiting>("a");
        EXPECT_FALSE(waiting.standby);
        EXPECT_EQ(waiting.joined, std::vector<std::string>{"a"});
        EXPECT_EQ(waiting.detail, "1 of 2 nodes ready, waiting for 1 more");
    }
}

// ---- Rank order.

TEST(RendezvousRankOrder, JoinedNodesHaveTheRanksOfTheirJoins) {
    JobPolicy policy = fixed_policy(3);
    policy.rank_order = RankOrder::joined;
    Job job(policy);
    Offer first = Job::offer_of("c");
    first.rank_key = "9";  // Counts for nothing here.
    job.join("c", first);
    job.join("a");
    job.join("a");  // A new connection is no new node.
    job.join("b");
    EXPECT_EQ(job.assignment("c").group_rank, 0U);
    EXPECT_EQ(job.assignment("a").group_rank, 1U);
    EXPECT_EQ(job.assignment("b").group_rank, 2U);
    job.killed("a");
    job.report("c", NodeState::stopped);
    job.report("b", NodeState::stopped);
    job.join("aa");
    EXPECT_EQ(job.assignment("c").group_rank, 0U);
    EXPECT_EQ(job.assignment("aa").group_rank, 1U);
    EXPECT_EQ(job.assignment("b").group_rank, 2U);
}

TEST(RendezvousRankOrder, KeysOfTheOffersGiveTheRanks) {
    Job job(fixed_policy(3));
    for (const auto& [node, key] :
         {std::pair("a", "s1.s3.a"), std::pair("b", "s0.s2.b"), std::pair("c", "s1.s3.c")}) {
        Offer offer = Job::offer_of(node);
        offer.rank_key = key;
        job.join(node, offer);
    }
    EXPECT_EQ(job.assignment("b").group_rank, 0U);
    EXPECT_EQ(job.assignment("a").group_rank, 1U);
    EXPECT_EQ(job.assignment("c").group_rank, 2U);
}

}  // namespace
}  // namespace regroup::rendezvous
