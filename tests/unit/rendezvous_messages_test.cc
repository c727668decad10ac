// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "rendezvous/base/signal_name.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

TEST(Messages, ValidateAcceptsTheDefaults) {
    EXPECT_TRUE(validate(JobPolicy{}).has_value());
}

TEST(Messages, ValidateNamesTheFieldsThatDisagree) {
    JobPolicy policy;
    policy.nodes_min = 0;
    EXPECT_EQ(validate(policy).error().detail, "the minimum number of nodes must be at least 1");
    policy.nodes_min = 4;
    policy.nodes_max = 2;
    EXPECT_EQ(validate(policy).error().detail,
              "the minimum number of nodes, 4, exceeds the maximum, 2");
    EXPECT_EQ(validate(policy).error().code, Errc::invalid_argument);
    policy = JobPolicy{};
    policy.heartbeat_timeout = milliseconds(99);
    EXPECT_FALSE(validate(policy).has_value());
    policy.heartbeat_timeout = milliseconds(100);
    EXPECT_TRUE(validate(policy).has_value());
}

TEST(Messages, AgentsOfALargeJobReportAThousandTimesASecondTogether) {
    EXPECT_EQ(usual_heartbeat_timeout(1), seconds(3));
    EXPECT_EQ(usual_heartbeat_timeout(1000), seconds(3));
    EXPECT_EQ(usual_heartbeat_timeout(10'000), seconds(30));
    EXPECT_EQ(usual_heartbeat_timeout(~0U), kHeartbeatTimeoutMax);
}

TEST(Messages, ValidateRefusesNegativeLimits) {
    for (Duration JobPolicy::* limit :
         {&JobPolicy::last_call, &JobPolicy::shutdown_timeout, &JobPolicy::grow_after}) {
        JobPolicy policy;
        policy.*limit = Duration(-1);
        EXPECT_FALSE(validate(policy).has_value());
        policy.*limit = Duration::zero();
        EXPECT_TRUE(validate(policy).has_value());
    }
}

TEST(Messages, ValidateRefusesLimitsThatKeepADeadPeerForYears) {
    JobPolicy policy;
    policy.heartbeat_timeout = kHeartbeatTimeoutMax;
    EXPECT_TRUE(validate(policy).has_value());
    policy.heartbeat_timeout += milliseconds(1);
    EXPECT_FALSE(validate(policy).has_value());
    for (Duration JobPolicy::* limit :
         {&JobPolicy::last_call, &JobPolicy::shutdown_timeout, &JobPolicy::grow_after,
          &JobPolicy::regroup_window, &JobPolicy::prepare_timeout, &JobPolicy::finish_timeout}) {
        policy = JobPolicy{};
        policy.*limit = kWaitMax;
        EXPECT_TRUE(validate(policy).has_value());
        policy.*limit += milliseconds(1);
        EXPECT_FALSE(validate(policy).has_value());
    }
    for (Duration Budgets::* limit : {&Budgets::delay, &Budgets::node_failures_window}) {
        policy = JobPolicy{};
        policy.budgets.*limit = kWaitMax + milliseconds(1);
        EXPECT_FALSE(validate(policy).has_value());
    }
}

TEST(Messages, DescribeTellsHowAWorkerEnded) {
    WorkerFailure failure;
    failure.rank = 5;
    failure.node = "b";
    failure.exit_code = 3;
    EXPECT_EQ(describe(failure), "rank 5 on b exited with code 3");
    failure.unfinished = true;
    EXPECT_EQ(describe(failure), "rank 5 on b exited with code 0 before its training was finished");
    failure.signal = SIGSEGV;
    EXPECT_EQ(describe(failure), "rank 5 on b was ended by SIGSEGV");
    failure.signal = 77;
    EXPECT_EQ(describe(failure), "rank 5 on b was ended by signal 77");
    failure.start_error = "Exec format error";
    EXPECT_EQ(describe(failure), "rank 5 on b could not start: Exec format error");
}

TEST(Messages, DescribeAddsTheFirstLineOfTheWorkersOwnMessage) {
    WorkerFailure failure;
    failure.rank = 5;
    failure.node = "b";
    failure.exit_code = 78;
    failure.error_message = "there is no data set.\nLook again.";
    EXPECT_EQ(describe(failure), "rank 5 on b exited with code 78");  // Another's words, of a file.
    failure.announced = true;
    EXPECT_EQ(describe(failure), "rank 5 on b exited with code 78: there is no data set");
    failure.signal = SIGABRT;
    EXPECT_EQ(describe(failure), "rank 5 on b was ended by SIGABRT: there is no data set");
    failure.error_message.clear();
    EXPECT_EQ(describe(failure), "rank 5 on b was ended by SIGABRT");
    failure.error_message = std::string(299, 'x') + "\u00e4\u00e4";
    EXPECT_EQ(describe(failure),
              "rank 5 on b was ended by SIGABRT: " + std::string(299, 'x') + "...");
}

TEST(Messages, ShellExitCodeIsWhatAShellWouldShowForEveryCodeAndSignal) {
    for (int code = 0; code < 256; ++code) {
        EXPECT_EQ(shell_exit_code(error_on("a", code)), code);
    }
    for (int signal = 1; signal <= 64; ++signal) {
        EXPECT_EQ(shell_exit_code(crash_on("a", signal)), 128 + signal);
    }
    WorkerFailure not_started;
    not_started.start_error = "Permission denied";
    EXPECT_EQ(shell_exit_code(not_started), 127);
}

TEST(Messages, CrashOutranksAnErrorButNotAnotherCrash) {
    EXPECT_TRUE(outranks(crash_on("b"), error_on("a")));
    EXPECT_TRUE(outranks(crash_on("b", SIGKILL), crash_on("a", SIGABRT)));
    EXPECT_FALSE(outranks(error_on("a"), crash_on("b")));
    EXPECT_FALSE(outranks(crash_on("a"), crash_on("b")));
    EXPECT_FALSE(outranks(error_on("a"), error_on("b")));
    EXPECT_FALSE(outranks(crash_on("a", SIGTERM), error_on("b")));
}

TEST(Messages, AnnouncedFailureOutranksAnUnannouncedOne) {
    WorkerFailure announced = error_on("a");
    announced.announced = true;
    EXPECT_TRUE(outranks(announced, error_on("b")));
    EXPECT_TRUE(outranks(announced, crash_on("b", SIGABRT)));
    EXPECT_FALSE(outranks(announced, crash_on("b", SIGSEGV)));
    EXPECT_FALSE(outranks(announced, announced));
    EXPECT_TRUE(outranks(crash_on("b", SIGSEGV), announced));
}

TEST(Messages, StatesAndOutcomesHaveNames) {
    EXPECT_EQ(to_string(NodeState::stopped), "stopped");
    EXPECT_EQ(to_string(NodeState::running), "running");
    EXPECT_EQ(to_string(NodeState::stopping), "stopping");
    EXPECT_EQ(to_string(NodeState::finished), "finished");
    EXPECT_EQ(to_string(Outcome::succeeded), "succeeded");
    EXPECT_EQ(to_string(Outcome::failed), "failed");
    EXPECT_EQ(to_string(Outcome::stopped), "stopped");
    EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
    EXPECT_EQ(signal_name(99), "signal 99");
}

}  // namespace
}  // namespace regroup::rendezvous
