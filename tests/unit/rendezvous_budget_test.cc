// SPDX-License-Identifier: Apache-2.0
//
// Charges for ends of rounds: budgets, back-offs, quarantines.

#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

class RendezvousCharges : public testing::Test {
   protected:
    void begin(const JobPolicy& policy, const std::vector<std::string>& nodes) {
        job = Job(policy);
        for (const std::string& node : nodes) {
            job.join(node);
        }
        job.run(nodes);
        ASSERT_EQ(job.core.phase(), Phase::training);
    }
    /// One worker of `node` fails, all others stop.
    void fail(const std::string& node, const WorkerFailure& failure,
              const std::vector<std::string>& others) {
        job.fail(node, failure);
        for (const std::string& other : others) {
            job.report(other, NodeState::stopped, job.core.round());
        }
    }
    void expect_closed(int exit_code, const std::string& reason) const {
        EXPECT_EQ(job.verdict().exit_code, exit_code);
        EXPECT_EQ(job.verdict().reason, reason);
    }
    Job job{fixed_policy(2)};
};

/// Two nodes.
JobPolicy pair_policy(std::uint32_t restarts) {
    JobPolicy policy = fixed_policy(2);
    policy.restarts_max = restarts;
    return policy;
}

WorkerFailure kind_on(const std::string& node, FailureKind kind, int exit_code) {
    WorkerFailure failure = error_on(node, exit_code);
    failure.kind = kind;
    return failure;
}

TEST_F(RendezvousCharges, ExitCodeMayCloseTheJob) {
    JobPolicy policy = pair_policy(10);
    policy.on_exit = {{2, Reaction::fail}};
    begin(policy, {"a", "b"});
    fail("b", error_on("b", 2), {"a"});
    expect_closed(2,
                  "rank 0 on b exited with code 2; trying again would not help (--on-exit 2=fail)");
}

TEST_F(RendezvousCharges, SignalCountsAsTheExitCodeOfAShell) {
    JobPolicy policy = pair_policy(0);
    policy.on_exit = {{128 + SIGUSR1, Reaction::retry}};
    begin(policy, {"a", "b"});
    fail("b", crash_on("b", SIGUSR1), {"a"});
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST_F(RendezvousCharges, WorkerMayDeclareItsFailureFinal) {
    begin(pair_policy(10), {"a", "b"});
    fail("b", kind_on("b", FailureKind::user_error, 78), {"a"});
    expect_closed(78, "rank 0 on b exited with code 78; it says that trying again cannot help");
}

TEST_F(RendezvousCharges, RetryIsNotChargedButIsLimited) {
    JobPolicy policy = pair_policy(0);
    policy.budgets.no_progress_max = 3;
    begin(policy, {"a", "b"});
    for (int i = 0; i < 2; ++i) {
        fail("b", kind_on("b", FailureKind::retry, 75), {"a"});
        job.pass(seconds(1));
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.run({"a", "b"});
    }
    EXPECT_EQ(job.assignment("a").restart_count, 2U);
    fail("b", kind_on("b", FailureKind::retry, 75), {"a"});
    expect_closed(kExitNoProgress,
                  "rank 0 on b exited with code 75; 3 rounds in a row ended without progress "
                  "(--no-progress 3)");
}

TEST_F(RendezvousCharges, RoundsThatEndTooSoonAreFollowedByABackOff) {
    begin(pair_policy(10), {"a", "b"});
    fail("b", crash_on("b"), {"a"});
    EXPECT_EQ(job.core.round(), RoundId{2});  // The first time at once.
    job.run({"a", "b"});
    fail("b", crash_on("b"), {"a"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_TRUE(job.core.is_backing_off());
    EXPECT_NE(
        describe(job.core.situation(job.now)).find("2 nodes ready, the next round begins in "),
        std::string::npos)
        << describe(job.core.situation(job.now));
    job.pass(milliseconds(74));
    EXPECT_EQ(job.core.round(), RoundId{2});
    job.pass(milliseconds(52));
    EXPECT_EQ(job.core.round(), RoundId{3});
}

TEST_F(RendezvousCharges, BadNodeIsQuarantinedAndAnotherTakesItsPlace) {
    JobPolicy policy = small_policy();
    policy.nodes_min = policy.nodes_max = 2;
    policy.restarts_max = 0;
    begin(policy, {"a", "b"});
    fail("b", kind_on("b", FailureKind::bad_node, 76), {"a"});
    EXPECT_EQ(job.core.phase(), Phase::forming);
    EXPECT_TRUE(job.core.is_quarantined("b"));
    job.pass(seconds(2));
    EXPECT_TRUE(job.heard<Waiting>("b").standby);  // As a standby it does not give up.
    EXPECT_EQ(describe(job.heard<Waiting>("b").detail).substr(0, 32),
              "node b is quarantined for 598 s:");
    job.join("c");
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("c").group_rank, 1U);
    job.run({"a", "c"});
    job.pass(seconds(10));
    EXPECT_EQ(job.core.phase(), Phase::training);
}

TEST_F(RendezvousCharges, NodeThatFailsRepeatedlyIsQuarantinedIfOthersCanReplaceIt) {
    JobPolicy policy = small_policy();
    policy.restarts_max = 10;
    begin(policy, {"a", "b", "c"});
    for (int i = 0; i < 3; ++i) {
        fail("b", crash_on("b"), {"a", "c"});
        job.pass(seconds(1));
        job.run({"a", "c"});
        if (i < 2) {
            job.run({"b"});
        }
    }
    EXPECT_TRUE(job.core.is_quarantined("b"));
    EXPECT_EQ(job.assignment("a").group_world_size, 2U);
    const JobStatus status = job.core.status(job.now);
    ASSERT_EQ(status.quarantined.size(), 1U);
    EXPECT_EQ(status.quarantined[0].why,
              "3 rounds ended because of it within 600 s, the last one because rank 0 on b was "
              "ended by SIGSEGV");
    // When a node is lost the others are too few, and it is needed.
    job.leave("c");
    job.report("a", NodeState::stopped, job.core.round());
    EXPECT_FALSE(job.core.is_quarantined("b"));
    EXPECT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("b").round, job.core.round());
}

TEST_F(RendezvousCharges, NeededNodeIsNotQuarantinedForNodeFailures) {
    begin(pair_policy(10), {"a", "b"});
    for (int i = 0; i < 6; ++i) {
        fail("b", crash_on("b"), {"a"});
        job.pass(seconds(4));
        ASSERT_EQ(job.core.phase(), Phase::training) << i;
        job.run({"a", "b"});
    }
}

TEST_F(RendezvousCharges, VerdictTellsHowManyLostNodesWereAllowed) {
    for (const std::uint32_t allowed : {0U, 2U}) {
        JobPolicy policy = small_policy();
        policy.nodes_min = 1;
        policy.last_call = {};
        policy.budgets.losses = allowed;
        job = Job(policy);
        job.join("a");
        for (std::uint32_t losses = 0; losses <= allowed; ++losses) {
            ASSERT_FALSE(job.core.verdict().has_value());
            job.join("b");
            job.pass(seconds(6));
            job.report("a", NodeState::stopped, job.core.round());
            ASSERT_EQ(job.assignment("b").group_world_size, 2U);
            job.run({"a", "b"});
            job.killed("b");
            job.report("a", NodeState::stopped, job.core.round());
        }
        EXPECT_EQ(job.verdict().reason,
                  allowed == 0 ? "node b left: its agent was killed; no node losses are allowed "
                                 "(--max-node-losses 0)"
                               : "node b left: its agent was killed; all 2 node losses used "
                                 "(--max-node-losses 2)");
    }
}

TEST_F(RendezvousCharges, TooManyLostNodesCloseTheJobIfTheyAreLimited) {
    JobPolicy policy = small_policy();
    policy.nodes_min = 1;
    policy.last_call = {};
    policy.nodes_max = 3;
    policy.budgets.losses = 1;
    job = Job(policy);
    for (const char* node : {"a", "b", "c"}) {
        job.join(node);
    }
    job.pass(seconds(6));
    job.report("a", NodeState::stopped, RoundId{1});
    ASSERT_EQ(job.assignment("c").group_world_size, 3U);
    job.run({"a", "b", "c"});
    job.silence("c");
    job.pass(seconds(4));
    job.report("a", NodeState::stopped, job.core.round());
    job.report("b", NodeState::stopped, job.core.round());
    job.run({"a", "b"});
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.silence("b");
    job.pass(seconds(4));
    job.report("a", NodeState::stopped, job.core.round());
    expect_closed(1,
                  "node b is lost: silent for 3.0 s; the only node loss is used "
                  "(--max-node-losses 1)");
}

// ---- Failures that are excused, and failures that are not.

TEST_F(RendezvousCharges, PlannedDepartureExcusesNoFailure) {
    JobPolicy policy = small_policy();
    policy.nodes_min = 1;
    begin(policy, {"a", "b", "c"});
    job.run_elastic({"a", "b", "c"}, 10);
    NodeReport leaving = job.report_of("b");
    leaving.draining = "stopped by SIGTERM";
    job.tell("b", leaving);
    job.leave("b");
    NodeReport wrong = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
    wrong.failure = kind_on("c", FailureKind::user_error, 2);
    job.tell("c", wrong);
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.verdict().exit_code, 2);
    EXPECT_EQ(job.verdict().author, "node c");
}

TEST_F(RendezvousCharges, LostNodeDoesNotExcuseAFinalFailure) {
    JobPolicy policy = small_policy();
    begin(policy, {"a", "b", "c"});
    job.cut_off("b");
    job.pass(milliseconds(200));
    job.fail("c", kind_on("c", FailureKind::user_error, 2));
    job.report("a", NodeState::stopped);
    EXPECT_EQ(job.verdict().exit_code, 2);
}

TEST_F(RendezvousCharges, NodeFailuresQuarantineAtMostAQuarterOfTheNodes) {
    JobPolicy policy = small_policy();
    policy.nodes_min = 1;
    policy.nodes_max = 5;
    policy.restarts_max = 100;
    policy.budgets.no_progress_max = 100;
    const std::vector<std::string> all = {"a", "b", "c", "d", "e"};
    begin(policy, all);
    std::size_t aside = 0;
    for (const char* node : {"a", "b", "c", "d"}) {
        for (int i = 0; i < 3; ++i) {
            std::vector<std::string> others;
            for (const std::string& other : all) {
                if (other != node) {
                    others.push_back(other);
                }
            }
            job.pass(std::chrono::seconds(31));
            job.run(all);
            fail(node, crash_on(node), others);
        }
        aside = std::max(aside, job.core.status(job.now).quarantined.size());
    }
    EXPECT_EQ(aside, 1U);
}

// ---- Programs that cannot be started.

WorkerFailure not_started_on(const std::string& node, bool may_start_later) {
    WorkerFailure failure;
    failure.node = node;
    failure.start_error = "cannot start '/srv/train': execve: ...";
    failure.may_start_later = may_start_later;
    return failure;
}

JobPolicy policy_with_final_codes() {
    JobPolicy policy = fixed_policy(1);
    policy.restarts_max = 2;
    policy.on_exit[127] = Reaction::fail;
    return policy;
}

TEST(StartFailures, ProgramThatHasNeverRunEndsTheJob) {
    Job job(policy_with_final_codes());
    job.join("a");
    job.fail("a", not_started_on("a", false));
    EXPECT_EQ(job.heard<Closed>("a").verdict.exit_code, 127);
    EXPECT_EQ(job.told<Recovered>("a"), nullptr);
}

TEST(StartFailures, ProgramThatHasRunIsTriedAgainWithABackOffUntilTheBudgetIsUsed) {
    for (const bool may_start_later : {false, true}) {
        SCOPED_TRACE(may_start_later);
        Job job(policy_with_final_codes());
        job.join("a");
        job.run({"a"});
        job.fail("a", crash_on("a"));
        ASSERT_EQ(job.core.round(), RoundId{2});
        job.fail("a", not_started_on("a", may_start_later));
        EXPECT_EQ(job.told<Closed>("a"), nullptr);
        EXPECT_EQ(job.core.round(), RoundId{2}) << "a back-off";
        job.pass(seconds(1));
        ASSERT_EQ(job.core.round(), RoundId{3});
        EXPECT_EQ(job.told<Recovered>("a"), nullptr) << "nothing has run";
        job.fail("a", not_started_on("a", may_start_later));
        EXPECT_EQ(job.heard<Closed>("a").verdict.exit_code, 127);
    }
}

TEST(StartFailures, NodeThatIsShortOfSomethingIsTriedAgainBeforeTheProgramHasRun) {
    Job job(policy_with_final_codes());
    job.join("a");
    job.fail("a", not_started_on("a", true));
    job.pass(seconds(1));
    EXPECT_EQ(job.core.round(), RoundId{2});
    job.run({"a"});
    EXPECT_EQ(job.times_told<Recovered>("a"), 1U);
}

}  // namespace
}  // namespace regroup::rendezvous
