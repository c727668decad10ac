// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "worker_sdk/src/base/control_group.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// A root of /proc and /sys with these files.
class ControlGroup : public ::testing::Test {
   protected:
    ControlGroup() {
        std::string pattern = fs::path(::testing::TempDir()) / "regroup-control-group-XXXXXX";
        EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
        root_ = pattern;
    }
    ~ControlGroup() override { fs::remove_all(root_); }

    void put(const std::string& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    [[nodiscard]] std::size_t memory_left() const { return control_group_memory_left(root_); }
    [[nodiscard]] std::uint64_t processors() const {
        const ProcessorQuota quota = control_group_processors(root_);
        EXPECT_EQ(quota.group == 0, quota.processors == 0);
        return quota.processors;
    }

   private:
    fs::path root_;
};

TEST_F(ControlGroup, MissingControlGroupHasNoLimit) {
    EXPECT_EQ(memory_left(), kNoLimit);
    EXPECT_EQ(processors(), 0U);
    put("proc/self/cgroup", "0::/job\n");
    put("sys/fs/cgroup/job/memory.max", "max\n");
    put("sys/fs/cgroup/job/memory.current", "1000\n");
    put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
    EXPECT_EQ(memory_left(), kNoLimit);
    EXPECT_EQ(processors(), 0U);
}

TEST_F(ControlGroup, TightestLimitCountsInVersion2) {
    put("proc/self/cgroup", "0::/job/task\n");
    put("sys/fs/cgroup/job/task/memory.max", "5000\n");
    put("sys/fs/cgroup/job/task/memory.current", "1000\n");
    put("sys/fs/cgroup/job/task/memory.stat", "anon 700\ninactive_file 300\n");
    EXPECT_EQ(memory_left(), 4300U);
    put("sys/fs/cgroup/job/memory.max", "4000\n");
    put("sys/fs/cgroup/job/memory.current", "5000\n");
    EXPECT_EQ(memory_left(), 0U);
    put("sys/fs/cgroup/job/task/cpu.max", "450000 100000\n");
    EXPECT_EQ(processors(), 4U);
    put("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
    EXPECT_EQ(processors(), 1U);
}

TEST_F(ControlGroup, TightestLimitCountsInVersion1) {
    put("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
    put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
    put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(memory_left(), 4300U);
    EXPECT_EQ(processors(), 0U);
    put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
    EXPECT_EQ(processors(), 2U);
}

// The path is the host's, of which only the top is mounted.
TEST_F(ControlGroup, ControlGroupOfAContainerIsFoundAtTheTop) {
    put("proc/self/cgroup", "0::/../machine/box-17\n4:memory:/docker/abc\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "40\n");
    EXPECT_EQ(processors(), 3U);
    EXPECT_EQ(memory_left(), 60U);
}

}  // namespace
}  // namespace regroup
