// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/process/oom_evidence.h"
#include "rendezvous/base/ensure.h"
#include "tests/support/temporary_directory.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

constexpr const char* kV1Mount = "32 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n";
constexpr const char* kV2Mount = "41 31 0:38 / /cg/unified rw shared:9 - cgroup2 cgroup2 rw\n";
constexpr pid_t kWorker = 123;

class OomEvidenceTest : public ::testing::Test {
   protected:
    OomEvidenceTest() { write("proc/vmstat", "oom_kill 7\nnuma_hit 1\n"); }

    void write(const std::string& file, const std::string& text) { folder_.write(file, text); }
    void log(const std::string& record) {
        std::ofstream(root_ / "dev/kmsg", std::ios::app) << record << "\n";
    }
    void show_log(const std::string& pid_namespace) {
        write("dev/kmsg", "6,1,10,-;Out of memory: Killed process 123 (before) total-vm:1kB\n");
        fs::create_directories(root_ / "proc/self/ns");
        fs::create_symlink(pid_namespace, root_ / "proc/self/ns/pid");
    }
    void be_in(const std::string& cgroups, const std::string& mounts) {
        write("proc/self/cgroup", cgroups);
        write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/root rw\n" + mounts);
    }

    testing::TemporaryDirectory folder_;
    fs::path root_ = folder_.path();
};

TEST_F(OomEvidenceTest, CounterOfAVersion2CgroupIsRead) {
    be_in("0::/job/7\n", kV2Mount);
    write("cg/unified/job/7/memory.events", "low 0\noom 2\noom_kill 4\noom_group_kill 0\n");
    OomWatch watch(root_);
    EXPECT_EQ(watch.evidence(kWorker), "") << "what happened before does not count";
    write("cg/unified/job/7/memory.events", "low 0\noom 3\noom_kill 5\noom_group_kill 0\n");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel's out-of-memory killer ended 1 process of this cgroup (memory.events "
              "oom_kill 4 -> 5)");
    write("cg/unified/job/7/memory.events", "oom_kill 14\n");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel's out-of-memory killer ended 10 processes of this cgroup (memory.events "
              "oom_kill 4 -> 14)");
}

TEST_F(OomEvidenceTest, CounterOfAVersion1CgroupComesFirst) {
    be_in("4:cpu,memory:/job\n2:cpuset:/other\n0::/\n", std::string(kV2Mount) + kV1Mount);
    write("cg/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    write("cg/unified/memory.events", "oom_kill 0\n");
    OomWatch watch(root_);
    write("cg/unified/memory.events", "oom_kill 1\n");
    EXPECT_EQ(watch.evidence(kWorker), "");
    write("cg/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel's out-of-memory killer ended 2 processes of this cgroup "
              "(memory.oom_control oom_kill 0 -> 2)");
}

TEST_F(OomEvidenceTest, MountMayShowAPartOfTheHierarchy) {
    for (const std::string cgroup : {"/pods/a b", "/../elsewhere", "/"}) {
        be_in("0::" + cgroup + "\n", "41 31 0:38 /pods/a\\040b /cg/my\\040own rw - cgroup2 x rw\n");
        write("cg/my own/memory.events", "oom_kill 0\n");
        OomWatch watch(root_);
        write("cg/my own/memory.events", "oom_kill 1\n");
        EXPECT_NE(watch.evidence(kWorker), "") << cgroup;
    }
}

TEST_F(OomEvidenceTest, MachineCounterIsReadWithoutACgroup) {
    be_in("4:memory:/gone\n0::/\n", std::string(kV2Mount) + kV1Mount);
    OomWatch watch(root_);
    EXPECT_EQ(watch.evidence(kWorker), "");
    write("proc/vmstat", "numa_hit 1\noom_kill 8\n");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel's out-of-memory killer ended 1 process of this machine (/proc/vmstat "
              "oom_kill 7 -> 8)");
}

TEST_F(OomEvidenceTest, LogNamesTheVictim) {
    show_log("pid:[4026531836]");
    OomWatch watch(root_);
    EXPECT_EQ(watch.evidence(kWorker), "") << "what was in the log before does not count";
    log("3,7,20,-;Out of memory: Killed process 1234 (train) total-vm:1kB");
    EXPECT_EQ(watch.evidence(kWorker), "") << "another process";
    log("6,8,20,-;oom_reaper: reaped process 123 (train), now anon-rss:0kB");
    EXPECT_EQ(watch.evidence(kWorker), "") << "no statement of a kill";
    log("3,9,20,-;Memory cgroup out of memory: Killed process 123 (a) b) total-vm:9kB, anon-rss:1");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel log says: Memory cgroup out of memory: Killed process 123 (a) b)");
    EXPECT_EQ(watch.evidence(1234),
              "the kernel log says: Out of memory: Killed process 1234 (train)");
}

TEST_F(OomEvidenceTest, EventsBeforeBeginAgainAreNotCounted) {
    show_log("pid:[4026531836]");
    OomWatch watch(root_);
    log("3,9,20,-;Out of memory: Killed process 123 (train) total-vm:9kB");
    write("proc/vmstat", "oom_kill 8\n");
    EXPECT_NE(watch.evidence(kWorker), "");
    log("3,9,21,-;Out of memory: Killed process 123 (train) total-vm:9kB");
    watch.begin_again();
    EXPECT_EQ(watch.evidence(kWorker), "");
    write("proc/vmstat", "oom_kill 9\n");
    EXPECT_EQ(watch.evidence(kWorker),
              "the kernel's out-of-memory killer ended 1 process of this machine (/proc/vmstat "
              "oom_kill 8 -> 9)");
}

TEST_F(OomEvidenceTest, DamagedRecordsAreNoEvidence) {
    show_log("pid:[4026531836]");
    OomWatch watch(root_);
    for (const char* record :
         {"", ";", "Killed process 123 (x) y", "3,1,1,-;Killed process ",
          "3,1,1,-;Killed process x123", "3,1,1,-;Killed process 99999999999"}) {
        log(record);
        EXPECT_EQ(watch.evidence(kWorker), "") << record;
    }
    log("3,1,1,-;Killed process 123");
    EXPECT_EQ(watch.evidence(kWorker), "the kernel log says: Killed process 123");
}

TEST_F(OomEvidenceTest, TextThatTheKernelQuotesIsNoEvidence) {
    show_log("pid:[4026531836]");
    OomWatch watch(root_);
    for (const char* record :
         {"3,1,1,-;tmpfs: Unknown parameter 'Out of memory: Killed process 123 (train)'",
          "3,1,1,-;Killed process [123]: segfault at 0 ip 0 sp 0 error 4 in x[1000+1000]",
          "12,1,1,-;Out of memory: Killed process 123 (train) total-vm:9kB", ";Killed process 123",
          "x,1,1,-;Killed process 123"}) {
        log(record);
        EXPECT_EQ(watch.evidence(kWorker), "") << record;
    }
}

TEST_F(OomEvidenceTest, LogIsIgnoredInAContainerWithItsOwnPids) {
    show_log("pid:[4026532177]");
    OomWatch watch(root_);
    log("3,9,20,-;Out of memory: Killed process 123 (train) total-vm:9kB");
    EXPECT_EQ(watch.evidence(kWorker), "");
}

TEST_F(OomEvidenceTest, NoFileGivesNoEvidence) {
    root_ /= "nothing";
    OomWatch watch(root_);
    EXPECT_EQ(watch.evidence(kWorker), "");
}

TEST_F(OomEvidenceTest, VanishedCounterGivesNoEvidence) {
    OomWatch watch(root_);
    write("proc/vmstat", "numa_hit 1\n");
    EXPECT_EQ(watch.evidence(kWorker), "");
    fs::remove(root_ / "proc/vmstat");
    EXPECT_EQ(watch.evidence(kWorker), "");
}

}  // namespace
}  // namespace regroup::agent
