// SPDX-License-Identifier: Apache-2.0
//
// Rounds that hang, as the collectives of their ranks tell.
#include "tests/unit/rendezvous_hang_job.h"

namespace regroup::rendezvous {
namespace {

/// The rank has entered so many collectives of a group of four.
RankPosition rank_in_group(std::uint32_t rank, std::uint64_t entered, std::uint64_t completed) {
    RankPosition position;
    position.rank = rank;
    GroupPosition group;
    group.id = 5;
    group.name = "nccl group";
    group.size = 4;
    group.entered = entered;
    group.completed = completed;
    group.knows_ends = true;
    group.stood = entered > completed ? seconds(11) : seconds(0);
    group.called = {{completed + 1, "all_reduce", ""}};
    position.groups = {group};
    return position;
}

class RendezvousCollectives : public RendezvousHang {
   protected:
    /// A node of a program that tells no steps.
    NodeReport report() const {
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::running, 10);
        report.elastic = false;
        return report;
    }
    NodeReport in_collective(std::uint32_t rank, bool only_told = true) const {
        NodeReport waiting = report();
        waiting.hang = Hang{rank, "rank is in all_reduce", false, seconds(11), true, only_told};
        return waiting;
    }
    /// Both nodes answer the alarm that they have heard.
    void all_answer(const NodeReport& first, std::uint64_t entered_by_last) {
        const std::uint32_t alarm = job.heard<SaveStacks>("b").alarm;
        NodeReport a = first;
        answer(a, alarm, {rank_in_group(0, 8, 7), rank_in_group(1, 8, 7)});
        NodeReport b = report();
        answer(b, alarm, {rank_in_group(2, 8, 7), rank_in_group(3, entered_by_last, 7)});
        job.tell("a", a);
        job.tell("b", b);
    }
};

TEST_F(RendezvousCollectives, OfRanksInTheSameStepTheOneThatIsMissingIsEnded) {
    job.tell("a", hanging(0));
    NodeReport a = hanging(0);
    answer(a, 1, {rank_in_group(0, 8, 7), rank_in_group(1, 8, 7)});
    NodeReport b = report();
    answer(b, 1, {rank_in_group(2, 8, 7), rank_in_group(3, 7, 7)});
    for (NodeReport* node : {&a, &b}) {
        for (RankPosition& position : node->positions) {
            position.step = 10;
        }
    }
    job.tell("a", a);
    job.tell("b", b);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
}

TEST_F(RendezvousCollectives, MissingRankIsNamedAndNotEnded) {
    job.tell("a", in_collective(0));
    EXPECT_TRUE(job.heard<SaveStacks>("a").positions_only);
    EXPECT_EQ(describe(job.core.situation(job.now)), "round 1 is running on 2 nodes");
    all_answer(in_collective(0), 7);
    EXPECT_FALSE(job.heard<SaveStacks>("a").positions_only);
    EXPECT_EQ(job.heard<SaveStacks>("b").reason,
              "rank 3 on b has not entered all_reduce 8 of nccl group, in which ranks 0-2 wait");
    EXPECT_EQ(job.heard<SaveStacks>("b").alarm, 2U);
    all_answer(in_collective(0), 7);
    job.pass(seconds(60));
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    EXPECT_EQ(describe(job.core.situation(job.now)),
              "round 1 hangs: rank 3 on b has not entered all_reduce 8 of nccl group, in which "
              "ranks 0-2 wait");
    job.tell("a", report());
    EXPECT_EQ(describe(job.core.situation(job.now)), "round 1 is running on 2 nodes");
}

TEST_F(RendezvousCollectives, MissingRankIsEndedAfterTheTimeout) {
    job.tell("a", in_collective(0));
    all_answer(in_collective(0), 7);
    all_answer(in_collective(0), 7);
    EXPECT_EQ(job.told<EndWorker>("b"), nullptr);
    job.tell("a", in_collective(0, false));
    EXPECT_EQ(job.heard<SaveStacks>("b").alarm, 3U);
    all_answer(in_collective(0, false), 7);
    all_answer(in_collective(0, false), 7);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
}

TEST_F(RendezvousCollectives, RanksThatAgreeAreAskedAgainLater) {
    job.tell("a", in_collective(0));
    all_answer(in_collective(0), 8);
    EXPECT_EQ(describe(job.core.situation(job.now)), "round 1 is running on 2 nodes");
    job.clear();
    job.pass(seconds(6));
    EXPECT_TRUE(job.heard<SaveStacks>("b").positions_only);
    EXPECT_EQ(job.heard<SaveStacks>("b").alarm, 2U);
}

TEST_F(RendezvousCollectives, SlowRankIsToldToEveryMemberAndIsAnEvent) {
    job.step(SlowRankFound{RoundId{1}, {3, 0.25}});
    const std::vector<JobEvent>& events = job.core.job_events();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, JobEvent::Kind::slow);
    EXPECT_EQ(events[0].node, "b");
    EXPECT_EQ(std::get<SlowRank>(events[0].detail).rank, 3U);
    for (const char* const node : {"a", "b"}) {
        EXPECT_EQ(job.heard<RankIsSlow>(node).slow, (SlowRank{3, 0.25}));
        EXPECT_EQ(job.heard<RankIsSlow>(node).node, "b");
    }
}

TEST_F(RendezvousCollectives, SlowRankOfAnotherRoundOrWorldIsNotTold) {
    job.step(SlowRankFound{RoundId{2}, {3, 0.25}});
    job.step(SlowRankFound{RoundId{1}, {4'000'000'000, 0.25}});
    EXPECT_TRUE(job.core.job_events().empty());
    EXPECT_EQ(job.told<RankIsSlow>("a"), nullptr);
}

}  // namespace
}  // namespace regroup::rendezvous
