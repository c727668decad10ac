// SPDX-License-Identifier: Apache-2.0
//
// Rounds that hang, where only silence or stopped processes are known.
#include <gtest/gtest.h>

#include "rendezvous/core/hang_culprit.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

RankPosition at(std::uint32_t rank, std::uint64_t step, std::uint64_t operations, bool waiting) {
    return {rank, step, operations, waiting, ""};
}

RankPosition silent(std::uint32_t rank, Duration time) {
    RankPosition position;
    position.rank = rank;
    position.silent = time;
    return position;
}

TEST(HangCulprit, AmongEqualsTheStoppedProcessIsTheCulprit) {
    std::vector<RankPosition> positions = {at(0, 7, 3, true), at(1, 7, 3, true), at(2, 7, 3, true)};
    positions[1].stopped = true;
    ASSERT_TRUE(find_culprit(positions, 0).has_value());
    EXPECT_EQ(find_culprit(positions, 0)->rank, 1U);
    EXPECT_EQ(*find_culprit(positions, 0),
              "rank 1 is stopped at step 7, by a signal or by a debugger; the others wait for it");
    positions[2].operations = 2;
    EXPECT_EQ(find_culprit(positions, 0)->rank, 2U)
        << "rank 2 is behind, whichever rank is stopped";
}

TEST(HangCulprit, StoppedOrLongestSilentRankIsTheCulpritWithoutPositions) {
    std::vector<RankPosition> positions = {at(0, 0, 0, false), at(1, 0, 0, false),
                                           at(2, 0, 0, false)};
    const auto node_of = [](std::uint32_t) { return std::string("n"); };
    EXPECT_EQ(find_silent(positions, 1, node_of)->rank, 1U);
    EXPECT_FALSE(find_silent(positions, 1, node_of)->proven());
    positions[0].silent = milliseconds(2000);
    positions[2].silent = milliseconds(5100);
    const auto silent = find_silent(positions, 0, node_of);
    EXPECT_EQ(silent->rank, 2U);
    EXPECT_FALSE(silent->proven());
    EXPECT_EQ(*silent,
              "no worker writes anything any more; rank 2 on n has been silent longest, for 5.1 s");
    positions[1].stopped = true;
    const auto stopped = find_silent(positions, 0, node_of);
    EXPECT_EQ(stopped->rank, 1U);
    EXPECT_TRUE(stopped->proven());
    EXPECT_EQ(*stopped, "rank 1 on n is stopped, by a signal or by a debugger");
    EXPECT_FALSE(find_silent({}, 0, node_of).has_value());
}

/// Two nodes of two ranks each: those of b have been silent for long, node a fell silent last.
class RendezvousSilence : public testing::Test {
   protected:
    RendezvousSilence() { job.join_all({"a", "b"}); }
    static JobPolicy policy() {
        JobPolicy policy = small_policy();
        policy.nodes_min = 1;
        policy.nodes_max = 2;
        policy.restarts_max = 100;
        policy.budgets.no_progress_max = 100;
        policy.budgets.node_failures_max = 2;
        policy.budgets.delay = Duration::zero();
        return policy;
    }
    void hangs(const std::string& node, std::uint32_t rank, std::vector<RankPosition> positions) {
        NodeReport report{job.core.round(), NodeState::running, 2000};
        report.hang = Hang{rank, "no worker of the node has written anything", true, seconds(2)};
        report.positions = std::move(positions);
        report.alarm = report.positions.empty() ? 0 : 1;
        job.tell(node, report);
    }
    void hang_and_answer(const RankPosition& last) {
        job.run({"a", "b"});
        hangs("b", 2, {});
        hangs("a", 0, {});
        job.clear();
        hangs("b", 2, {silent(2, seconds(4)), last});
        hangs("a", 0, {silent(0, seconds(2)), silent(1, seconds(3))});
    }
    /// The worker has been ended, and the round ends and is followed by the next one.
    void end(const std::string& node, std::uint32_t rank) {
        WorkerFailure failure = crash_on(node, SIGKILL);
        failure.kind = FailureKind::hang;
        failure.rank = rank;
        failure.by_silence = job.heard<EndWorker>(node).by_silence;
        job.fail(node, failure);
        job.clear();
        job.report("a", NodeState::stopped);
    }
    Job job{policy()};
};

TEST_F(RendezvousSilence, WorkerThatHangsInItsFirstStepIsNotCalledSilent) {
    job.run({"a", "b"});
    NodeReport report{job.core.round(), NodeState::running, 2000};
    report.hang = Hang{2, "rank 2 has been in step 0 for 10 min", false, seconds(600)};
    job.tell("b", report);
    job.clear();
    report.alarm = 1;
    report.positions = {silent(2, {}), silent(3, {})};
    job.tell("b", report);
    report.hang.reset();
    report.positions = {silent(0, {}), silent(1, {})};
    job.tell("a", report);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 2U);
    EXPECT_EQ(job.heard<EndWorker>("b").reason, "rank 2 has been in step 0 for 10 min");
    EXPECT_FALSE(job.heard<EndWorker>("b").by_silence);
}

TEST_F(RendezvousSilence, LongestSilentWorkerIsEndedWhicheverNodeReportsLast) {
    hang_and_answer(silent(3, seconds(5)));
    EXPECT_EQ(job.told<EndWorker>("a"), nullptr);
    EXPECT_EQ(job.heard<EndWorker>("b").rank, 3U);
    EXPECT_EQ(job.heard<EndWorker>("b").reason,
              "no worker writes anything any more; rank 3 on b has been silent longest, for 5.0 s");
    WorkerFailure failure = crash_on("b", SIGKILL);
    failure.kind = FailureKind::hang;
    failure.rank = 3;
    failure.by_silence = job.heard<EndWorker>("b").by_silence;
    job.fail("b", failure);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "rank 3 on b was silent longest as its round hung, and was ended");
}

TEST_F(RendezvousSilence, NodesAreNotQuarantinedForSilence) {
    for (std::uint64_t i = 0; i < 5; ++i) {
        hang_and_answer(silent(3, seconds(5)));
        end("b", 3);
        ASSERT_TRUE(job.core.status(job.now).quarantined.empty()) << i;
        ASSERT_EQ(job.core.round(), RoundId(i + 2));
    }
}

TEST_F(RendezvousSilence, NodesAreNotQuarantinedForSilenceIfTheWorkerIsNotEndedInTime) {
    for (int i = 0; i < 3; ++i) {
        hang_and_answer(silent(3, seconds(5)));
        job.pass(seconds(11));
        ASSERT_EQ(job.core.phase(), Phase::ending);
        job.report("a", NodeState::stopped);
        job.report("b", NodeState::stopped);
        ASSERT_TRUE(job.core.status(job.now).quarantined.empty()) << i;
    }
}

TEST_F(RendezvousSilence, StoppedProcessIsNamedAndChargedToItsNode) {
    RankPosition stopped = silent(3, seconds(3));
    stopped.stopped = true;
    for (int i = 0; i < 2; ++i) {
        hang_and_answer(stopped);
        EXPECT_EQ(job.heard<EndWorker>("b").reason,
                  "rank 3 on b is stopped, by a signal or by a debugger");
        end("b", 3);
    }
    ASSERT_EQ(job.core.status(job.now).quarantined.size(), 1U);
}

TEST_F(RendezvousSilence, LastReporterIsEndedWithoutANodeFailureIfNoNodeAnswers) {
    job.run({"a", "b"});
    hangs("b", 2, {});
    hangs("a", 0, {});
    job.clear();
    hangs("b", 2, {silent(2, {}), silent(3, {})});
    hangs("a", 0, {silent(0, {}), silent(1, {})});
    EXPECT_EQ(job.heard<EndWorker>("a").reason,
              "no worker writes anything any more; rank 0 on a is silent");
}

}  // namespace
}  // namespace regroup::rendezvous
