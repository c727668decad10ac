// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "agent/process/memory_room.h"
#include "rendezvous/base/ensure.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMebi = 1 << 20;

class MemoryRoomTest : public ::testing::Test {
   protected:
    MemoryRoomTest() {
        std::string pattern = (fs::temp_directory_path() / "regroup-XXXXXX").string();
        ENSURE(::mkdtemp(pattern.data()) != nullptr);
        root_ = pattern;
        write("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 100 kB\nMemAvailable: 2097152 kB\n");
        write("proc/self/cgroup", "0::/job/7\n");
        write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/root rw\n");
    }
    ~MemoryRoomTest() override {
        std::error_code ignored;
        fs::remove_all(root_, ignored);
    }

    void write(const std::string& file, const std::string& text) {
        fs::create_directories((root_ / file).parent_path());
        std::ofstream(root_ / file) << text;
    }
    void run(pid_t pid, std::uint64_t mebibytes) {
        const std::uint64_t pages =
            mebibytes * kMebi / static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        write("proc/" + std::to_string(pid) + "/statm",
              "99999999 " + std::to_string(pages) + " 7 1 0 5 0\n");
    }
    void open_file(pid_t pid, int number, const std::string& target) {
        const fs::path folder = root_ / "proc" / std::to_string(pid) / "fd";
        fs::create_directories(folder);
        fs::create_symlink(target, folder / std::to_string(number));
    }
    void mount(const char* line) {
        std::ofstream(root_ / "proc/self/mountinfo", std::ios::app) << line;
    }
    [[nodiscard]] MemoryRoom measure(const std::vector<pid_t>& processes) const {
        return measure_room(processes, root_);
    }

    fs::path root_;
};

TEST_F(MemoryRoomTest, WhatIsHeldMustBeThereOnceMoreAndATenth) {
    run(10, 1000);
    run(11, 800);
    EXPECT_TRUE(measure({10, 11}).is_enough());
    run(11, 900);
    EXPECT_FALSE(measure({10, 11}).is_enough());
    EXPECT_EQ(measure({10, 11}).text(), "they hold 1.9 GiB and 2.0 GiB are free");
}

TEST_F(MemoryRoomTest, WhoIsGoneHoldsNothing) {
    run(10, 100);
    EXPECT_EQ(measure({10, 99}).held_bytes, 100 * kMebi);
    EXPECT_EQ(measure({10, 99}).free_bytes, 2048 * kMebi);
}

TEST_F(MemoryRoomTest, AnyCgroupOfVersion2ThatIsAboveMayBeTheLimit) {
    mount("41 31 0:38 / /cg rw shared:9 - cgroup2 cgroup2 rw\n");
    write("cg/job/7/memory.max", "max\n");
    write("cg/job/7/memory.current", "104857600\n");
    EXPECT_EQ(measure({}).free_bytes, 2048 * kMebi);
    write("cg/job/memory.max", "524288000\n");
    write("cg/job/memory.current", "314572800\n");
    EXPECT_EQ(measure({}).free_bytes, 200 * kMebi);
    // Pages that are given back when they are wanted.
    write("cg/job/memory.stat", "anon 209715200\ninactive_file 104857600\nactive_file 0\n");
    EXPECT_EQ(measure({}).free_bytes, 300 * kMebi);
    run(10, 280);
    EXPECT_FALSE(measure({10}).is_enough());
    EXPECT_EQ(measure({10}).text(), "they hold 280 MiB and 300 MiB are free");
}

TEST_F(MemoryRoomTest, SoMayOneOfVersion1) {
    write("proc/self/cgroup", "4:cpu,memory:/docker/job\n0::/\n");
    mount("32 31 0:32 /docker/job /cg/memory rw - cgroup cgroup rw,memory\n");
    write("cg/memory/memory.limit_in_bytes", "209715200\n");
    write("cg/memory/memory.usage_in_bytes", "157286400\n");
    write("cg/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 52428800\n");
    EXPECT_EQ(measure({}).free_bytes, 100 * kMebi);
    // More used than allowed: the limit was lowered.
    write("cg/memory/memory.usage_in_bytes", "957286400\n");
    EXPECT_EQ(measure({}).free_bytes, 0U);
}

TEST_F(MemoryRoomTest, TheMemoryOfAGpuCannotBePromised) {
    run(10, 1);
    open_file(10, 0, "/dev/null");
    open_file(10, 3, "/dev/nvidiactl");
    EXPECT_TRUE(measure({10}).is_enough());
    open_file(10, 4, "/dev/nvidia3");
    EXPECT_FALSE(measure({10}).is_enough());
    EXPECT_EQ(measure({10}).text(), "they have /dev/nvidia3 open");
}

TEST_F(MemoryRoomTest, WithoutAFigureThereIsNoRoom) {
    fs::remove(root_ / "proc/meminfo");
    run(10, 1);
    EXPECT_FALSE(measure({10}).is_enough());
}

}  // namespace
}  // namespace regroup::agent
