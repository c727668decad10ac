// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/cgroup/cgroup.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/machine_folder.h"

namespace regroup::cgroup {
namespace {

constexpr const char* kVersion2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n";
constexpr const char* kVersion1 =
    "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "33 23 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "34 23 0:31 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";

class Cgroup : public ::testing::Test {
   protected:
    void be_in(const std::string& groups, const std::string& mounts) const {
        machine_.write("proc/self/cgroup", groups);
        machine_.write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/root rw\n" + mounts);
    }
    void put(const std::string& file, const std::string& text) const {
        machine_.write("sys/fs/cgroup/" + file, text);
    }
    [[nodiscard]] double cpus() const {
        const auto quota = cpu_quota(machine_.root());
        return quota ? quota->cpus : 0;
    }
    [[nodiscard]] std::uint64_t memory() const {
        return memory_left(machine_.root()).value_or(UINT64_MAX);
    }
    [[nodiscard]] std::uint64_t tasks() const {
        const auto limit = task_limit(machine_.root());
        return limit ? limit->left() : UINT64_MAX;
    }
    void expect_no_limit() const {
        EXPECT_EQ(cpus(), 0);
        EXPECT_EQ(memory(), UINT64_MAX);
        EXPECT_EQ(tasks(), UINT64_MAX);
    }

    testing::MachineFolder machine_;
};

TEST_F(Cgroup, MissingGroupAndMissingLimitsLimitNothing) {
    expect_no_limit();
    be_in("0::/job\n", kVersion2);
    expect_no_limit();
    put("job/cpu.max", "max 100000\n");
    put("job/memory.max", "max\n");
    put("job/memory.current", "1000\n");
    put("job/pids.max", "max\n");
    put("job/pids.current", "3\n");
    expect_no_limit();
}

TEST_F(Cgroup, SmallestLimitOfAllLevelsCountsInVersion2) {
    be_in("0::/pod/container/task\n", kVersion2);
    put("pod/container/task/cpu.max", "450000 100000\n");
    EXPECT_EQ(cpus(), 4.5);
    put("cpu.max", "350000 100000\n");
    EXPECT_EQ(cpus(), 3.5);
    put("pod/cpu.max", "125000 50000\n");
    EXPECT_EQ(cpus(), 2.5);
    EXPECT_EQ(cpu_quota(machine_.root())->folder, machine_.root() / "sys/fs/cgroup/pod");

    put("pod/container/memory.max", "5000\n");
    put("pod/container/memory.current", "1000\n");
    put("pod/container/memory.stat", "anon 700\ninactive_file 300\n");
    EXPECT_EQ(memory(), 4300U);
    put("pod/memory.max", "4000\n");
    put("pod/memory.current", "5000\n");
    EXPECT_EQ(memory(), 0U);

    put("pod/container/pids.max", "100\n");
    put("pod/container/pids.current", "10\n");
    EXPECT_EQ(tasks(), 90U);
    put("pod/pids.max", "200\n");
    put("pod/pids.current", "150\n");
    EXPECT_EQ(tasks(), 50U);
    EXPECT_EQ(task_limit(machine_.root())->folder, machine_.root() / "sys/fs/cgroup/pod");
}

TEST_F(Cgroup, SmallestLimitOfAllLevelsCountsInVersion1) {
    be_in("7:pids:/job/step\n5:cpu,cpuacct:/job/step\n4:memory:/job/step\n0::/\n", kVersion1);
    put("cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
    put("memory/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/job/step/memory.usage_in_bytes", "1000\n");
    put("pids/job/step/pids.max", "max\n");
    put("pids/job/step/pids.current", "1\n");
    expect_no_limit();
    put("cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
    put("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(cpus(), 2);
    put("memory/job/memory.limit_in_bytes", "5000\n");
    put("memory/job/memory.usage_in_bytes", "1000\n");
    put("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
    EXPECT_EQ(memory(), 4300U);
    put("pids/job/pids.max", "20\n");
    put("pids/job/pids.current", "21\n");
    EXPECT_EQ(tasks(), 0U);
}

// The path may be the host's, of which only a part is mounted.
TEST_F(Cgroup, GroupOfAContainerIsFoundAtTheTop) {
    for (const std::string groups : {"0::/../machine/box-17\n", "0::/docker/abc\n", "0::/\n"}) {
        be_in(groups, "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 none rw\n");
        put("cpu.max", "300000 100000\n");
        EXPECT_EQ(cpus(), 3) << groups;
    }
}

TEST_F(Cgroup, MountPointIsReadFromTheKernel) {
    be_in("5:cpu:/\n0::/job\n",
          "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\n"
          "34 23 0:31 / /sys/fs/cgroup/my\\040own rw - cgroup2 none rw\n");
    put("my own/job/cpu.max", "100000 100000\n");
    EXPECT_EQ(cpus(), 1);
}

TEST(CgroupQuota, IsRoundedUpToAtLeastOne) {
    EXPECT_EQ((CpuQuota{{}, 0.25}.rounded_up()), 1U);
    EXPECT_EQ((CpuQuota{{}, 2}.rounded_up()), 2U);
    EXPECT_EQ((CpuQuota{{}, 2.01}.rounded_up()), 3U);
}

}  // namespace
}  // namespace regroup::cgroup
