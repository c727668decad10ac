// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>

#include "launcher/host.h"
#include "launcher_variables.h"

namespace regroup::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScopedVariable;

TEST(LauncherHost, ThisHostIsKnownByItsNamesAndAddresses) {
    EXPECT_TRUE(names_this_host("localhost"));
    EXPECT_TRUE(names_this_host("127.0.0.1"));
    EXPECT_TRUE(names_this_host("127.8.8.8"));
    EXPECT_TRUE(names_this_host("::1"));
    EXPECT_TRUE(names_this_host("0:0:0:0:0:0:0:1"));
    EXPECT_TRUE(names_this_host(short_host_name()));
    for (const std::string& address : own_addresses()) {
        EXPECT_TRUE(names_this_host(address)) << address;
    }
}

TEST(LauncherHost, OtherAddressesAreOtherHosts) {
    EXPECT_FALSE(names_this_host("192.0.2.77"));
    EXPECT_FALSE(names_this_host("2001:db8::77"));
    EXPECT_FALSE(names_this_host("not a name"));
}

TEST(LauncherHost, OwnAddressesAreNotLoopback) {
    for (const std::string& address : own_addresses()) {
        EXPECT_THAT(address, Not(::testing::StartsWith("127.")));
        EXPECT_NE(address, "::1");
    }
    EXPECT_THAT(short_host_name(), Not(HasSubstr(".")));
}

TEST(LauncherHost, UserIsNamedByItsAccountThenByTheEnvironmentThenByNumber) {
    constexpr uid_t kNobodys = 3999999999;  // Has no account.
    const ScopedVariable logname("LOGNAME", "ann");
    const ScopedVariable user("USER", "bob");
    EXPECT_EQ(user_name(0), "root");
    EXPECT_EQ(user_name(kNobodys), "ann");
    const ScopedVariable no_logname("LOGNAME", nullptr);
    EXPECT_EQ(user_name(kNobodys), "bob");
    const ScopedVariable no_user("USER", "");
    EXPECT_EQ(user_name(kNobodys), "user 3999999999");
}

// A machine of two GPUs, as /proc shows it.
class LauncherGpus : public ::testing::Test {
   protected:
    LauncherGpus() {
        for (const char* bus : {"0000:3b:00.0", "0000:5e:00.0"}) {
            std::filesystem::create_directories(root_ + "/proc/driver/nvidia/gpus/" + bus);
        }
    }
    ~LauncherGpus() override { std::filesystem::remove_all(root_); }

    std::string root_ = ::testing::TempDir() + "gpus" + std::to_string(::getpid());
};

TEST_F(LauncherGpus, VisibleGpusAreCountedAsCudaReadsThem) {
    const std::vector<std::pair<const char*, std::uint32_t>> cases{
        {"", 0},     {"-1", 0},     {"NoDevFiles", 0},         {"0", 1},
        {"0, 1", 2}, {"1,-1,0", 1}, {"GPU-8932f937,MIG-1", 2}, {"0,,1", 1}};
    for (const auto& [list, count] : cases) {
        const ScopedVariable variable("CUDA_VISIBLE_DEVICES", list);
        EXPECT_EQ(count_gpus(root_), count) << list;
    }
    const ScopedVariable unset("CUDA_VISIBLE_DEVICES", nullptr);
    EXPECT_EQ(count_gpus(root_), 2U);
}

TEST_F(LauncherGpus, VariableWithoutGpusGivesNone) {
    const ScopedVariable variable("CUDA_VISIBLE_DEVICES", "0,1,2");
    EXPECT_EQ(count_gpus(root_ + "/no-machine"), 0U);
}

TEST(LauncherHost, WorkersAreCountedByCpusOrGivenAsANumber) {
    EXPECT_EQ(*count_workers("cpu"), count_cpus());
    EXPECT_EQ(*count_workers("12"), 12U);
}

TEST(LauncherHost, AutoTakesTheCpusWithoutGpusAndGpuIsAnError) {
    const ScopedVariable none("CUDA_VISIBLE_DEVICES", "");
    EXPECT_EQ(*count_workers("auto"), count_cpus());
    EXPECT_GE(count_cpus(), 1U);
    const Result<std::uint32_t> workers = count_workers("gpu");
    ASSERT_FALSE(workers);
    EXPECT_EQ(workers.error().code, Errc::invalid_argument);
    EXPECT_THAT(workers.error().detail, HasSubstr("--nproc-per-node gpu"));
}

}  // namespace
}  // namespace regroup::launcher
