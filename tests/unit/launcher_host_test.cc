// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <sched.h>
#include <unistd.h>

#include "launcher/host.h"
#include "launcher_variables.h"
#include "tests/support/failures.h"
#include "tests/support/machine_folder.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

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
   public:
    ~LauncherGpus() override { std::filesystem::remove_all(root_); }

   protected:
    LauncherGpus() {
        for (const char* bus : {"0000:3b:00.0", "0000:5e:00.0"}) {
            std::filesystem::create_directories(root_ + "/proc/driver/nvidia/gpus/" + bus);
        }
    }

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

/// A machine whose cgroup has this quota; "": none.
class LauncherCpus : public ::testing::Test {
   protected:
    void limit(const std::string& quota) {
        machine_.write("proc/self/cgroup", "0::/pod/container\n");
        machine_.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n");
        machine_.write("sys/fs/cgroup/pod/cpu.max", quota);
    }
    std::uint32_t workers(const std::string& word) {
        notes_.clear();
        return *count_workers(word, notes_, machine_.root());
    }

    testing::MachineFolder machine_;
    std::vector<std::string> notes_;
    const ScopedVariable no_gpus_{"CUDA_VISIBLE_DEVICES", ""};
    cpu_set_t before_ = affinity();

   private:
    static cpu_set_t affinity() {
        cpu_set_t set;
        EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
        return set;
    }
};

TEST_F(LauncherCpus, WorkersAreCountedByTheAffinityWithoutAQuota) {
    const auto allowed = static_cast<std::uint32_t>(CPU_COUNT(&before_));
    for (const char* quota : {"max 100000", "100000000 100000"}) {
        limit(quota);
        EXPECT_EQ(count_cpus(machine_.root()), allowed);
        EXPECT_EQ(workers("cpu"), allowed);
        EXPECT_EQ(workers("auto"), allowed);
        EXPECT_THAT(notes_, IsEmpty());
        EXPECT_EQ(workers("12"), 12U);
    }
}

TEST_F(LauncherCpus, QuotaOfTheCgroupLimitsTheWorkersAndANoticeSaysSo) {
    if (CPU_COUNT(&before_) < 2) {
        GTEST_SKIP() << "one CPU is the least that a quota gives";
    }
    limit("30000 100000");
    EXPECT_EQ(count_cpus(machine_.root()), 1U);
    for (const std::string word : {"cpu", "auto"}) {
        EXPECT_EQ(workers(word), 1U);
        ASSERT_EQ(notes_.size(), 1U);
        EXPECT_THAT(notes_[0], AllOf(StartsWith("--nproc-per-node " + word + ": 1 worker, "),
                                     HasSubstr("0.3 of ")));
    }
    limit("110000 100000");
    EXPECT_EQ(count_cpus(machine_.root()), 2U) << "rounded up";
    EXPECT_EQ(workers("12"), 12U);
    EXPECT_THAT(notes_, IsEmpty());
}

TEST(LauncherHost, NoGpuIsAnErrorIfOnePerGpuIsAskedFor) {
    const ScopedVariable none("CUDA_VISIBLE_DEVICES", "");
    std::vector<std::string> notes;
    EXPECT_THAT(count_workers("gpu", notes), fails(Errc::invalid_argument, "--nproc-per-node gpu"));
}

}  // namespace
}  // namespace regroup::launcher
