// SPDX-License-Identifier: Apache-2.0
//
// Tests the counters of failures: the budgets of a job, and the failures of its nodes.
#include <set>

#include <gtest/gtest.h>

#include "rendezvous/core/node_failures.h"
#include "rendezvous/core/restart_budget.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

using Answer = RestartBudget::Answer;

JobPolicy budget_policy(std::uint32_t restarts) {
    JobPolicy policy = small_policy();
    policy.restarts_max = restarts;
    return policy;
}

TEST(RestartBudget, FailuresBeyondTheBudgetExhaustIt) {
    RestartBudget budget(budget_policy(2));
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{1}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{2}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(budget.used(Charge::failure), 2U);
    EXPECT_EQ(budget.restarts(), 2U);
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{3}, seconds(60)).answer, Answer::exhausted);
    EXPECT_EQ(budget.restarts(), 2U);
}

TEST(RestartBudget, HangsAreFailuresUnlessTheyHaveTheirOwnBudget) {
    RestartBudget shared(budget_policy(1));
    EXPECT_EQ(shared.charge(Charge::hang, RoundId{1}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(shared.charge(Charge::failure, RoundId{2}, seconds(60)).answer, Answer::exhausted);

    JobPolicy policy = budget_policy(0);
    policy.budgets.hangs = 1;
    RestartBudget own(policy);
    EXPECT_EQ(own.charge(Charge::hang, RoundId{1}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(own.charge(Charge::hang, RoundId{2}, seconds(60)).answer, Answer::exhausted);
}

TEST(RestartBudget, LossesAreNotChargedUnlessTheyAreLimited) {
    RestartBudget any(budget_policy(0));
    for (std::uint64_t round = 1; round < 100; ++round) {
        EXPECT_EQ(any.charge(Charge::loss, RoundId{round}, {}).answer, Answer::again);
    }
    EXPECT_EQ(any.restarts(), 0U);
    EXPECT_EQ(any.used(Charge::loss), 99U);

    JobPolicy policy = budget_policy(0);
    policy.budgets.losses = 3;
    RestartBudget three(policy);
    EXPECT_EQ(three.charge(Charge::loss, RoundId{1}, {}, 2).answer, Answer::again);
    EXPECT_EQ(three.charge(Charge::loss, RoundId{2}, {}, 2).answer, Answer::exhausted);
}

TEST(RestartBudget, ProgressRefillsTheBudget) {
    JobPolicy policy = budget_policy(1);
    policy.budgets.refill_steps = 100;
    RestartBudget budget(policy);
    budget.reach(50);
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{1}, seconds(60)).answer, Answer::again);
    budget.reach(149);
    EXPECT_EQ(budget.used(Charge::failure), 1U);
    budget.reach(150);
    EXPECT_EQ(budget.used(Charge::failure), 0U);
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{2}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(budget.restarts(), 2U);  // A refill does not reset it.
}

TEST(RestartBudget, RoundsWithoutProgressEndTheJobUnlessOneMoreStepIsCommitted) {
    JobPolicy policy = budget_policy(100);
    policy.budgets.no_progress_max = 3;
    RestartBudget budget(policy);
    for (std::uint64_t step = 1; step < 8; ++step) {
        budget.reach(step);
        EXPECT_EQ(budget.charge(Charge::failure, RoundId{1}, seconds(1)).answer, Answer::again);
    }
    for (std::uint64_t round = 2; round < 4; ++round) {
        budget.reach(7);
        EXPECT_EQ(budget.charge(Charge::failure, RoundId{round}, seconds(60)).answer,
                  Answer::again);
    }
    EXPECT_EQ(budget.charge(Charge::loss, RoundId{4}, seconds(60)).answer, Answer::again);
    EXPECT_EQ(budget.charge(Charge::failure, RoundId{5}, seconds(60)).answer, Answer::no_progress);
}

TEST(RestartBudget, JobWithoutStepsEndsForNoProgressOnlyAfterRetries) {
    JobPolicy policy = budget_policy(100);
    policy.budgets.no_progress_max = 2;
    RestartBudget failing(policy);
    for (std::uint64_t round = 1; round < 20; ++round) {
        EXPECT_EQ(failing.charge(Charge::failure, RoundId{round}, seconds(1)).answer,
                  Answer::again);
    }
    RestartBudget retried(policy);
    EXPECT_EQ(retried.charge(Charge::retry, RoundId{1}, seconds(1)).answer, Answer::again);
    EXPECT_EQ(retried.charge(Charge::retry, RoundId{2}, seconds(1)).answer, Answer::no_progress);
    RestartBudget slow(policy);
    for (std::uint64_t round = 1; round < 20; ++round) {
        EXPECT_EQ(slow.charge(Charge::retry, RoundId{round}, seconds(10)).answer, Answer::again);
    }
}

TEST(RestartBudget, BackOffDoublesFromTheSecondQuickFailureAndEndsWithProgress) {
    JobPolicy policy = budget_policy(100);
    policy.budgets.no_progress_max = 0;
    RestartBudget budget(policy);
    const auto back_off = [&](std::uint64_t round, Duration lasted) {
        return budget.charge(Charge::failure, RoundId{round}, lasted).delay;
    };
    EXPECT_EQ(back_off(1, seconds(1)), Duration::zero());
    Duration nominal = milliseconds(100);
    for (std::uint64_t round = 2; round < 40; ++round) {
        const Duration delay = back_off(round, seconds(1));
        EXPECT_LE(delay, RestartBudget::kDelayLimit);
        EXPECT_GE(delay, nominal * 3 / 4);
        EXPECT_LE(delay, nominal * 5 / 4);
        nominal = std::min(nominal * 2, RestartBudget::kDelayLimit);
    }
    EXPECT_EQ(back_off(40, seconds(10)), Duration::zero());  // The round lasted long enough.
    EXPECT_EQ(back_off(41, seconds(1)), Duration::zero());
    EXPECT_GT(back_off(42, seconds(1)), Duration::zero());
    budget.reach(1);
    EXPECT_EQ(back_off(43, seconds(1)), Duration::zero());
}

TEST(RestartBudget, JobsBackOffForDifferentTimes) {
    std::set<Duration> delays;
    for (const char* program : {"train", "eval", "serve", "llm", "resnet", "mnist"}) {
        JobPolicy policy = budget_policy(100);
        policy.program = program;
        RestartBudget budget(policy);
        (void)budget.charge(Charge::failure, RoundId{1}, seconds(1));
        delays.insert(budget.charge(Charge::failure, RoundId{2}, seconds(1)).delay);
    }
    EXPECT_GE(delays.size(), 5U);
}

// ---- Nodes that fail again and again.

const Instant kStart = Instant{} + std::chrono::hours(1);

TEST(NodeFailures, TooManyFailuresWithinTheWindowAreReported) {
    NodeFailures failures(3, seconds(60));
    EXPECT_FALSE(failures.count("a", kStart));
    EXPECT_FALSE(failures.count("a", kStart + seconds(30)));
    EXPECT_FALSE(failures.count("a", kStart + seconds(60)));  // The first one is forgotten.
    EXPECT_FALSE(failures.count("b", kStart + seconds(60)));
    EXPECT_TRUE(failures.count("a", kStart + seconds(61)));
}

TEST(NodeFailures, QuarantinedNodeIsReleasedAfterTheWindow) {
    NodeFailures failures(1, seconds(60));
    failures.quarantine("a", "smoke", true, kStart);
    EXPECT_TRUE(failures.is_quarantined("a"));
    EXPECT_EQ(failures.next_deadline(), kStart + seconds(60));
    EXPECT_TRUE(failures.expire(kStart + seconds(59)).empty());
    EXPECT_EQ(failures.expire(kStart + seconds(60)), std::vector<std::string>{"a"});
    EXPECT_FALSE(failures.is_quarantined("a"));
    EXPECT_EQ(failures.next_deadline(), Instant::max());
}

TEST(NodeFailures, ReleaseKeepsNodesThatAWorkerAskedToQuarantine) {
    NodeFailures failures(1, seconds(60));
    failures.quarantine("bad", "smoke", true, kStart);
    failures.quarantine("unlucky", "three ends", false, kStart);
    EXPECT_EQ(failures.release(), std::vector<std::string>{"unlucky"});
    EXPECT_TRUE(failures.is_quarantined("bad"));
}

TEST(NodeFailures, NamesAreBounded) {
    NodeFailures failures(2, seconds(60));
    for (std::size_t i = 0; i < NodeFailures::kNamesLimit; ++i) {
        (void)failures.count("n" + std::to_string(i), kStart);
    }
    (void)failures.count("one more", kStart + seconds(1));
    EXPECT_TRUE(failures.count("one more", kStart + seconds(1)));
    EXPECT_FALSE(failures.count("n0", kStart + seconds(1)));  // Forgotten, so this is its first.
}

}  // namespace
}  // namespace regroup::rendezvous
