// SPDX-License-Identifier: Apache-2.0
//
// Rounds of which some ranks have ended with success while others go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

using testing::HasSubstr;

TEST(RankSet, JoinsRangesThatTouchAndCountsRanks) {
    RankSet ranks;
    for (const std::uint32_t rank : {5U, 1U, 3U, 2U, 1U}) {
        ranks.add(rank);
    }
    EXPECT_EQ(ranks.size(), 4U);
    ASSERT_EQ(ranks.ranges().size(), 2U);
    EXPECT_EQ(ranks.ranges()[0], (RankSet::Range{1, 3}));
    EXPECT_TRUE(ranks.contains(3));
    EXPECT_FALSE(ranks.contains(4));
    EXPECT_FALSE(ranks.contains(0));
    EXPECT_EQ(describe(ranks), "ranks 1-3, 5");
    EXPECT_EQ(describe(RankSummary::of_others(ranks, 7)), "ranks 0, 4, 6");
    ranks.add(RankSet::Range{0, 100});
    EXPECT_EQ(ranks, RankSet(RankSet::Range{0, 100}));
    EXPECT_TRUE(RankSummary::of_others(ranks, 100).empty());
    RankSet scattered;
    for (std::uint32_t rank = 0; rank < 100; rank += 2) {
        scattered.add(rank);
    }
    EXPECT_EQ(describe(scattered), "ranks 0, 2, 4, 6 and 46 more");
    EXPECT_EQ(describe(RankSummary::of_others(scattered, 100)), "ranks 1, 3, 5, 7 and 46 more");
    EXPECT_EQ(describe(RankSet(RankSet::Range{7, 1})), "rank 7");
}

/// Nodes a (ranks 0 and 1) and b (ranks 2 and 3) in round 1.
class RendezvousFinishing : public testing::Test {
   protected:
    void begin(Duration finish_timeout) {
        JobPolicy policy = fixed_policy(2);
        policy.finish_timeout = finish_timeout;
        job.emplace(policy);
        job->join("a");
        job->join("b");
        job->run({"a", "b"});
        job->clear();
    }
    static NodeReport of(RankSet finished) {
        NodeReport report;
        report.round = RoundId{1};
        report.state = NodeState::running;
        report.finished = std::move(finished);
        return report;
    }
    [[nodiscard]] std::vector<JobEvent> finish_events(Duration span) {
        std::vector<JobEvent> found;
        for (const Instant end = job->now + span; job->now < end;) {
            job->pass(milliseconds(100));
            for (const JobEvent& event : job->core.job_events()) {
                if (event.kind == JobEvent::Kind::finished) {
                    found.push_back(event);
                }
            }
        }
        return found;
    }
    std::optional<Job> job;
};

TEST_F(RendezvousFinishing, StatusSaysAtOnceWhoHasFinishedAndWhoGoesOn) {
    begin({});
    job->tell("a", of(RankSet(RankSet::Range{1, 1})));
    const JobStatus status = job->core.status(job->now);
    EXPECT_EQ(describe(status.situation),
              "round 1 is running on 2 nodes; rank 1 finished with exit code 0, and ranks 0, 2-3 "
              "have gone on for 0 ms since");
    EXPECT_EQ(describe_detail(status.nodes.at(0)), "rank 1 has finished");
    EXPECT_EQ(describe_detail(status.nodes.at(1)), "");
    job->report("b", NodeState::finished);
    EXPECT_EQ(job->core.status(job->now).situation.partial_finish.finished.size(), 3U);
    job->report("a", NodeState::finished);
    EXPECT_EQ(job->core.phase(), Phase::closed);
    EXPECT_FALSE(job->core.status(job->now).situation.partial_finish.is_known());
}

TEST_F(RendezvousFinishing, EventAndMembersAreToldAfterAWhileAndNotBefore) {
    begin({});
    job->tell("a", of(RankSet(RankSet::Range{1, 1})));
    EXPECT_TRUE(finish_events(seconds(4)).empty());
    EXPECT_FALSE(job->told<Alive>("b")->partial_finish.is_known());
    EXPECT_EQ(finish_events(seconds(2)).size(), 1U);
    job->clear();
    job->beat("b");
    EXPECT_THAT(describe(job->told<Alive>("b")->partial_finish),
                HasSubstr("rank 1 finished with exit code 0, and ranks 0, 2-3 have gone on for"));
    // From now on each further rank is an event.
    job->tell("b", of(RankSet(RankSet::Range{2, 1})));
    EXPECT_EQ(job->core.job_events().size(), 1U);
    job->pass(std::chrono::hours(2));
    EXPECT_EQ(job->core.phase(), Phase::training);  // Nobody has asked for an end.
}

TEST_F(RendezvousFinishing, JobEndsWithACodeOfItsOwnAfterTheFinishTimeout) {
    begin(seconds(8));
    job->report("b", NodeState::finished);
    job->pass(seconds(7));
    EXPECT_EQ(job->core.phase(), Phase::training);
    EXPECT_THAT(describe(job->core.situation(job->now)), HasSubstr("(--finish-timeout)"));
    job->pass(seconds(1));
    ASSERT_EQ(job->core.phase(), Phase::closed);
    const Verdict& verdict = *job->core.verdict();
    EXPECT_EQ(verdict.outcome, Outcome::failed);
    EXPECT_EQ(verdict.exit_code, kExitUnfinished);
    EXPECT_EQ(describe(verdict.reason),
              "ranks 2-3 finished with exit code 0, and ranks 0-1 did not within 8.0 s "
              "(--finish-timeout)");
    EXPECT_NE(job->told<Closed>("a"), nullptr);
}

TEST_F(RendezvousFinishing, FinishTimeoutWaitsForNodesThatComeBackToARestartedDaemon) {
    begin(seconds(8));
    job->tell("a", of(RankSet(RankSet::Range{1, 1})));
    job->now += seconds(60);  // Nobody could tell anything.
    job->step(Restarted{});
    job->pass(milliseconds(100));
    EXPECT_EQ(job->core.phase(), Phase::training);
    job->report("a", NodeState::finished);
    job->report("b", NodeState::finished);
    EXPECT_EQ(job->core.verdict()->outcome, Outcome::succeeded);
}

TEST_F(RendezvousFinishing, FinishTimeoutDoesNotRunAfterAFailure) {
    begin(seconds(8));
    job->tell("a", of(RankSet(RankSet::Range{1, 1})));
    job->pass(seconds(1));
    job->fail("b", crash_on("b"));
    job->confirm_stopped({"a"});
    ASSERT_EQ(job->core.round(), RoundId{2});
    job->run({"a", "b"});
    job->pass(seconds(20));
    EXPECT_EQ(job->core.phase(), Phase::training);
    EXPECT_FALSE(job->core.situation(job->now).partial_finish.is_known());
}

TEST_F(RendezvousFinishing, RanksOfAnotherNodeAreNotBelieved) {
    begin({});
    job->tell("a", of(RankSet(RankSet::Range{1, 3})));
    job->tell("b", of(RankSet(RankSet::Range{4000000000U, 200})));
    EXPECT_FALSE(job->core.situation(job->now).partial_finish.is_known());
}

/// All members report that nothing moves, with what is known of their live ranks.
void hang(Job& job, const std::vector<RankPosition>& a, const std::vector<RankPosition>& b,
          RankSet finished) {
    NodeReport report;
    report.round = RoundId{1};
    report.state = NodeState::running;
    report.hang = Hang{0, "nothing moves", true};
    report.alarm = 1;
    report.positions = b;
    NodeReport first = report;
    first.positions = a;
    first.finished = std::move(finished);
    job.tell("a", first);
    job.tell("b", report);  // Now all members report it, and are asked for their stacks.
    job.tell("a", first);
    job.tell("b", report);
}

TEST_F(RendezvousFinishing, HangIsBlamedOnTheRankThatHasFinishedAndNoOtherIsKilled) {
    begin({});
    RankPosition silent;
    silent.silent = seconds(60);
    std::vector<RankPosition> a{silent};
    std::vector<RankPosition> b{silent, silent};
    b[0].rank = 2;
    b[1].rank = 3;
    hang(*job, a, b, RankSet(RankSet::Range{1, 1}));
    EXPECT_EQ(job->told<EndWorker>("a"), nullptr);
    EXPECT_EQ(job->told<EndWorker>("b"), nullptr);
    ASSERT_NE(job->told<Stop>("b"), nullptr);
    EXPECT_THAT(describe(job->told<Stop>("b")->reason),
                HasSubstr("rank 1 on a finished with exit code 0"));
    job->confirm_stopped({"a", "b"});
    EXPECT_EQ(job->core.round(), RoundId{2});
    job->run({"a", "b"});
    job->fail("b", crash_on("b"));
    job->confirm_stopped({"a"});
    ASSERT_EQ(job->core.phase(), Phase::closed);  // Both count against the one restart.
}

TEST_F(RendezvousFinishing, LastHangOnAFinishedRankEndsTheJobWithACodeOtherThanZero) {
    JobPolicy policy = fixed_policy(2);
    policy.restarts_max = 0;
    job.emplace(policy);
    job->join("a");
    job->join("b");
    job->run({"a", "b"});
    hang(*job, {{0, 3, 1, true, "all_reduce"}},
         {{2, 3, 1, true, "all_reduce"}, {3, 3, 1, true, "all_reduce"}},
         RankSet(RankSet::Range{1, 1}));
    job->confirm_stopped({"a", "b"});
    ASSERT_EQ(job->core.phase(), Phase::closed);
    EXPECT_EQ(job->core.verdict()->exit_code, 1);
    ASSERT_TRUE(job->core.verdict()->failure);
    EXPECT_EQ(job->core.verdict()->failure->rank, 1U);
    EXPECT_EQ(job->core.verdict()->failure->node, "a");
}

TEST_F(RendezvousFinishing, StoppedProcessIsBlamedThoughARankHasFinished) {
    begin({});
    RankPosition stopped{2, 3, 1, false, "", true};
    hang(*job, {{0, 3, 1, true, "all_reduce"}}, {stopped, {3, 3, 1, true, "all_reduce"}},
         RankSet(RankSet::Range{1, 1}));
    ASSERT_NE(job->told<EndWorker>("b"), nullptr);
    EXPECT_EQ(job->told<EndWorker>("b")->rank, 2U);
}

}  // namespace
}  // namespace regroup::rendezvous
