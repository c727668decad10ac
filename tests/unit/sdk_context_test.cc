// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/error.h>

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/context_variables.h"

namespace regroup {
namespace {

using testing::context_from;
using testing::Values;

std::optional<Error> error_from(const Values& values) {
    try {
        (void)context_from(values);
        return std::nullopt;
    } catch (const Error& error) {
        return error;
    }
}

const Values kByHand = {
    {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

const Values kUnderALauncher = {{"RANK", "9"},
                                {"WORLD_SIZE", "16"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "1234"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "8"},
                                {"GROUP_RANK", "1"},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"REGROUP_ROUND", "12345678901"},
                                {"REGROUP_CPU_TRANSPORT", "tcp"},
                                {"TORCHELASTIC_RUN_ID", "job-7"},
                                {"TORCHELASTIC_RESTART_COUNT", "3"},
                                {"TORCHELASTIC_MAX_RESTARTS", "5"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

TEST(ContextFromEnvironment, LauncherNamesTheNodeOfItsOwnMasterOnly) {
    Values values = kUnderALauncher;
    EXPECT_EQ(context_from(values).master_node_addr, "");
    values["MASTER_ADDR"] = "127.0.0.1";
    values["REGROUP_MASTER_NODE_ADDR"] = "10.0.0.4";
    EXPECT_EQ(context_from(values).master_node_addr, "10.0.0.4");
    EXPECT_EQ(Context::master_node_of("127.0.0.1"), "10.0.0.4");
    EXPECT_EQ(Context::master_node_of("node0"), "");
}

TEST(ContextFromEnvironment, EmptyEnvironmentIsAWorldOfOne) {
    const Context context = context_from({});
    EXPECT_EQ(context.rank, 0U);
    EXPECT_EQ(context.world_size, 1U);
    EXPECT_EQ(context.local_world_size, 1U);
    EXPECT_TRUE(context.is_main_process());
    context.store()->set("key", "value");
    EXPECT_EQ(context.store()->get("key"), "value");
}

TEST(ContextFromEnvironment, FourVariablesAreEnough) {
    const Context context = context_from(kByHand);
    EXPECT_EQ(context.rank, 2U);
    EXPECT_EQ(context.world_size, 4U);
    EXPECT_EQ(context.master_addr, "10.0.0.1");
    EXPECT_EQ(context.master_port, 29500);
    EXPECT_EQ(context.local_rank, 2U);
    EXPECT_EQ(context.local_world_size, 4U);
    EXPECT_EQ(context.group_world_size, 1U);
    EXPECT_EQ(context.job, "none");
    EXPECT_EQ(context.cpu_transport, "auto");
    EXPECT_FALSE(context.agent_store);
    EXPECT_FALSE(context.is_main_process());
}

TEST(ContextFromEnvironment, AllVariablesOfALauncherAreRead) {
    const Context context = context_from(kUnderALauncher);
    EXPECT_EQ(context.rank, 9U);
    EXPECT_EQ(context.local_rank, 1U);
    EXPECT_EQ(context.local_world_size, 8U);
    EXPECT_EQ(context.group_rank, 1U);
    EXPECT_EQ(context.group_world_size, 2U);
    EXPECT_EQ(context.round, 12345678901U);
    EXPECT_EQ(context.job, "job-7");
    EXPECT_EQ(context.cpu_transport, "tcp");
    EXPECT_EQ(context.restart_count, 3U);
    EXPECT_EQ(context.max_restarts, 5U);
    EXPECT_TRUE(context.agent_store);
}

TEST(ContextFromEnvironment, MissingVariableIsNamed) {
    for (const auto& [missing, value] : kByHand) {
        Values values = kByHand;
        values.erase(missing);
        const auto error = error_from(values);
        ASSERT_TRUE(error) << missing;
        EXPECT_EQ(error->code(), Errc::invalid_argument);
        EXPECT_THAT(error->what(), HasSubstr("but not " + missing));
    }
}

TEST(ContextFromEnvironment, EmptyVariableCountsAsMissing) {
    Values values = kByHand;
    values["MASTER_ADDR"] = "";
    const auto error = error_from(values);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("but not MASTER_ADDR"));
}

TEST(ContextFromEnvironment, MalformedVariableIsNamedWithItsValue) {
    const std::vector<std::pair<std::string, std::string>> malformed = {
        {"RANK", "two"},
        {"RANK", "-1"},
        {"RANK", "1x"},
        {"RANK", " 1"},
        {"RANK", "99999999999"},
        {"WORLD_SIZE", "0"},
        {"WORLD_SIZE", "4.0"},
        {"MASTER_PORT", "0"},
        {"MASTER_PORT", "65536"},
        {"LOCAL_RANK", "x"},
        {"LOCAL_WORLD_SIZE", "0"},
        {"GROUP_RANK", "x"},
        {"GROUP_WORLD_SIZE", "0"},
        {"REGROUP_ROUND", "-3"},
        {"REGROUP_CPU_TRANSPORT", "udp"},
        {"TORCHELASTIC_RESTART_COUNT", "x"},
        {"TORCHELASTIC_MAX_RESTARTS", "x"},
        {"TORCHELASTIC_USE_AGENT_STORE", "perhaps"},
    };
    for (const auto& [name, value] : malformed) {
        Values values = kUnderALauncher;
        values[name] = value;
        const auto error = error_from(values);
        ASSERT_TRUE(error) << name << "=" << value;
        EXPECT_EQ(error->code(), Errc::invalid_argument);
        EXPECT_THAT(error->what(), AllOf(HasSubstr(name + "="), HasSubstr("\"" + value + "\"")));
    }
}

TEST(ContextFromEnvironment, RankNotBelowItsSizeIsRefused) {
    for (const auto& [rank, size] :
         {std::pair{"RANK", "WORLD_SIZE"}, std::pair{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
          std::pair{"GROUP_RANK", "GROUP_WORLD_SIZE"}}) {
        Values values = kUnderALauncher;
        values[rank] = values[size];
        const auto error = error_from(values);
        ASSERT_TRUE(error) << rank;
        EXPECT_THAT(error->what(), AllOf(HasSubstr(rank), HasSubstr(size)));
    }
}

TEST(ContextStore, CopiesShareTheStoreUntilOneUsesAnother) {
    const Context context;
    Context copy = context;
    EXPECT_EQ(copy.store(), context.store());
    const auto other = make_local_store(std::chrono::seconds(1));
    copy.use_store(other);
    EXPECT_EQ(copy.store(), other);
    EXPECT_NE(context.store(), other);
}

}  // namespace
}  // namespace regroup
