// SPDX-License-Identifier: Apache-2.0
//
// The flags that say what a job survives, and how.
#include <array>

#include <gtest/gtest.h>

#include "launcher/run_flag_table.h"
#include "launcher/run_plan.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

using rendezvous::Reaction;

Result<std::variant<RunFlags, ShowText>> parse(Front front, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--log-dir=/dev/null", "/bin/true"});
    return parse_run_flags(front, flags);
}

RunFlags options_of(std::vector<std::string> flags, Front front = Front::run) {
    auto parsed = parse(front, std::move(flags));
    EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().detail);
    return parsed ? std::get<RunFlags>(*parsed) : RunFlags();
}

std::string complaint_about(std::vector<std::string> flags) {
    const auto parsed = parse(Front::run, std::move(flags));
    return parsed ? "none" : parsed.error().detail;
}

TEST(RecoveryFlags, NodesOfALargeJobMayBeSilentForLonger) {
    const auto timeout = [](std::vector<std::string> flags) {
        return options_of(std::move(flags)).agent.core.policy.heartbeat_timeout;
    };
    using std::chrono::seconds;
    EXPECT_EQ(timeout({"--nnodes=1000"}), seconds(3));
    EXPECT_EQ(timeout({"--nnodes=2:16000"}), seconds(3));
    EXPECT_EQ(timeout({"--nnodes=10000:11000"}), seconds(30));
    EXPECT_EQ(timeout({"--nnodes=10000", "--heartbeat-timeout=3"}), seconds(3));
    EXPECT_EQ(timeout({"--nnodes=10000", "--rdzv-conf=keep_alive_interval=4"}), seconds(12));
}

TEST(RecoveryFlags, FlagsGoIntoThePolicy) {
    const RunFlags options =
        options_of({"--standbys=2", "--max-hangs=1", "--max-node-losses=7", "--refill-steps=100",
                    "--no-progress=9", "--restart-delay=2", "--max-node-failures=4",
                    "--node-failures-window=60", "--regroup-window=0.5", "--prepare-timeout=30"});
    const Result<RunPlan> plan = make_run_plan(options);
    ASSERT_TRUE(plan);
    const rendezvous::JobPolicy& policy = plan->agent.core.policy;
    EXPECT_EQ(policy.standbys_max, 2U);
    EXPECT_EQ(policy.budgets.hangs, 1U);
    EXPECT_EQ(policy.budgets.losses, 7U);
    EXPECT_EQ(policy.budgets.refill_steps, 100U);
    EXPECT_EQ(policy.budgets.no_progress_max, 9U);
    EXPECT_EQ(policy.budgets.delay, std::chrono::seconds(2));
    EXPECT_EQ(policy.budgets.node_failures_max, 4U);
    EXPECT_EQ(policy.budgets.node_failures_window, std::chrono::seconds(60));
    EXPECT_EQ(policy.regroup_window, std::chrono::milliseconds(500));
    EXPECT_EQ(policy.prepare_timeout, std::chrono::seconds(30));
}

TEST(RecoveryFlags, OmittedFlagsHaveThePolicysDefaults) {
    const Result<RunPlan> plan = make_run_plan(options_of({}));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->agent.core.policy.budgets, rendezvous::Budgets());
    EXPECT_EQ(plan->agent.core.policy.standbys_max, rendezvous::JobPolicy().standbys_max);
    EXPECT_EQ(plan->agent.core.policy.regroup_window, rendezvous::JobPolicy().regroup_window);
    EXPECT_EQ(plan->agent.core.policy.prepare_timeout, rendezvous::JobPolicy().prepare_timeout);
}

TEST(RecoveryFlags, ExitCodesAreAddedToTheDefaults) {
    const RunFlags options = options_of({"--on-exit=3=fail,2=restart"});
    EXPECT_EQ(options.agent.core.policy.on_exit.at(3), Reaction::fail);
    EXPECT_EQ(options.agent.core.policy.on_exit.at(2), Reaction::restart);
    EXPECT_EQ(options.agent.core.policy.on_exit.at(75), Reaction::retry);
    EXPECT_EQ(options.agent.core.policy.on_exit.at(76), Reaction::replace_node);
    EXPECT_TRUE(options_of({"--on-exit=none"}).agent.core.policy.on_exit.empty());
    EXPECT_TRUE(options_of({}, Front::torchrun).agent.core.policy.on_exit.empty());
}

TEST(RecoveryFlags, MistakesAreNamed) {
    EXPECT_THAT(complaint_about({"--on-exit=3"}), HasSubstr("CODE=REACTION"));
    EXPECT_THAT(complaint_about({"--on-exit=3=explode"}), HasSubstr("'3=explode'"));
    EXPECT_THAT(complaint_about({"--on-exit=0=fail"}), HasSubstr("from 1 to 255"));
    EXPECT_THAT(complaint_about({"--on-exit=3=fail,3=retry"}), HasSubstr("names code 3 twice"));
    EXPECT_THAT(complaint_about({"--on-exit=3=fail,"}), HasSubstr("--on-exit"));
    EXPECT_THAT(complaint_about({"--max-hangs=many"}), HasSubstr("restarts or a whole number"));
    EXPECT_THAT(complaint_about({"--prepare-timeout=0"}), HasSubstr("above 0"));
}

TEST(RecoveryFlags, ImpossibleStandbysGiveANotice) {
    const auto notes_of = [](const std::vector<std::string>& flags) {
        const Result<RunPlan> plan = make_run_plan(options_of(flags));
        EXPECT_TRUE(plan) << (plan ? "" : plan.error().detail);
        return plan ? plan->notes : std::vector<std::string>{"no plan"};
    };
    constexpr const char* kAlone =
        "--standbys 1 is not used: in a job of this node alone no other node can wait for a place";
    EXPECT_THAT(notes_of({"--standalone", "--standbys=1"}), ElementsAre(kAlone));
    EXPECT_THAT(notes_of({"--standbys=1"}), ElementsAre(kAlone));
    EXPECT_THAT(
        notes_of({"--standbys=1", "--nnodes=2", "--node-rank=1", "--master-addr=a", "--insecure"}),
        ElementsAre("--standbys 1 is not used: with fixed ranks (--rdzv-backend=static) no "
                    "other node can wait for a place"));
    EXPECT_THAT(notes_of({"--standalone"}), IsEmpty());
    // Beyond a fixed number of nodes they replace those that are lost, one node included.
    for (const char* nodes : {"1", "2", "2:4"}) {
        EXPECT_THAT(notes_of({"--standbys=1", std::string("--nnodes=") + nodes,
                              "--rdzv-backend=c10d", "--rdzv-endpoint=a", "--insecure"}),
                    IsEmpty());
    }
}

TEST(Endpoints, SeveralEndpointsStartNoDaemonHere) {
    RunFlags options = options_of(
        {"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:29400,127.0.0.1:29401"});
    const Result<RunPlan> plan = make_run_plan(options);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->daemon.hosting, Hosting::never);
    EXPECT_EQ(plan->daemon.other_endpoints.size(), 1U);
    options.rendezvous.is_host = true;
    EXPECT_FALSE(make_run_plan(options));
    options = options_of({"--nnodes=2", "--rdzv-endpoint=a:1,b:2"});
    EXPECT_THAT(make_run_plan(options), fails("one endpoint"));
}

}  // namespace
}  // namespace regroup::launcher
