// SPDX-License-Identifier: Apache-2.0
//
// The probes, on a folder that looks like the root of a machine, and with a stand-in for NVML.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "agent/health/folder_probe.h"
#include "agent/health/gpu_holders.h"
#include "agent/health/gpu_probe.h"
#include "agent/health/host_probe.h"
#include "agent/health/load_test.h"
#include "agent/health/probe_answer.h"
#include "tests/support/gpu_holders.h"
#include "tests/support/machine_folder.h"
#include "tests/support/matchers.h"

namespace regroup::health {
namespace {

using State = Gpu::State;

class HealthProbe : public ::testing::Test {
   protected:
    HealthProbe() {
        machine_.add_gpu("0000:9f:00.0", 1);
        machine_.add_gpu("0000:3b:00.0", 0);
    }
    Driver probe(const std::string& facts) {
        machine_.tell_nvml(facts);
        ::setenv("STAND_IN_NVML", machine_.nvml_facts().c_str(), 1);
        return probe_driver(places_);
    }

    testing::MachineFolder machine_;
    Places places_{machine_.root(), STAND_IN_NVML_LIBRARY};
};

TEST_F(HealthProbe, ReadsAllFactsOfGpusInTheOrderOfTheBus) {
    const Driver driver = probe(
        "0000:9f:00.0 action 2\n"
        "0000:9f:00.0 pending 1\n"
        "0000:9f:00.0 remap_failed 1\n"
        "0000:9f:00.0 errors 5\n"
        "0000:9f:00.0 clocks 64\n"
        "0000:9f:00.0 used 3000000000\n"
        "0000:9f:00.0 pid 4711\n"
        "0000:9f:00.0 uuid 99\n"
        "0000:3b:00.0 code 0\n");
    ASSERT_EQ(driver.state, Driver::State::answers) << driver.error;
    ASSERT_THAT(driver.gpus, SizeIs(2));
    EXPECT_EQ(driver.gpus[0].address, "0000:3b:00.0");
    EXPECT_EQ(driver.gpus[0].recovery_action, -1);
    const Gpu& gpu = driver.gpus[1];
    EXPECT_EQ(gpu.state, State::answers);
    EXPECT_EQ(gpu.uuid, "GPU-99");
    EXPECT_EQ(gpu.recovery_action, 2);
    EXPECT_TRUE(gpu.remap_pending);
    EXPECT_TRUE(gpu.remap_failed);
    EXPECT_EQ(gpu.uncorrected_errors, 5U);
    EXPECT_EQ(gpu.clock_reasons, 64U);
    EXPECT_EQ(gpu.memory_used, 3000000000U);
    ASSERT_THAT(gpu.processes, SizeIs(1));
    EXPECT_EQ(gpu.processes[0].pid, 4711U);
    EXPECT_EQ(gpu.processes[0].bytes, 3000000000U);
}

TEST_F(HealthProbe, TellsLostDeniedFailedAndMissingGpusApart) {
    machine_.add_gpu("0000:aa:00.0", 2);
    machine_.add_gpu("0000:bb:00.0", 3);
    const Driver driver = probe(
        "0000:3b:00.0 code 15\n"
        "0000:9f:00.0 code 4\n"
        "0000:aa:00.0 code 999\n");
    ASSERT_THAT(driver.gpus, SizeIs(4));
    EXPECT_EQ(driver.gpus[0].state, State::lost);
    EXPECT_EQ(driver.gpus[1].state, State::denied);
    EXPECT_EQ(driver.gpus[2].state, State::failed);
    EXPECT_EQ(driver.gpus[2].error, "Some Error (999)");
    EXPECT_EQ(driver.gpus[3].state, State::missing);
}

TEST_F(HealthProbe, GpuWithoutADeviceFileIsNotGivenToThisContainer) {
    std::filesystem::remove(machine_.root() / "dev/nvidia1");
    const Driver driver = probe("0000:3b:00.0 code 0\n");
    ASSERT_THAT(driver.gpus, SizeIs(2));
    EXPECT_EQ(driver.gpus[1].state, State::denied);
}

// The cgroup of a batch system leaves the device files of others there, but forbids them.
TEST_F(HealthProbe, GpuThatThisProcessMayNotOpenIsNotJudged) {
    std::filesystem::remove(machine_.root() / "dev/nvidia1");
    // The kernel lets nobody write this file, not even root.
    std::filesystem::create_symlink("/proc/sys/kernel/osrelease", machine_.root() / "dev/nvidia1");
    for (const std::string code : {"", "0000:9f:00.0 code 999\n"}) {
        const Driver driver = probe("0000:3b:00.0 code 0\n" + code);
        ASSERT_THAT(driver.gpus, SizeIs(2));
        EXPECT_EQ(driver.gpus[0].state, State::answers);
        EXPECT_EQ(driver.gpus[1].state, State::denied) << code;
    }
}

TEST_F(HealthProbe, GpuThatTheAdministratorHasExcludedIsNotJudged) {
    machine_.write("proc/driver/nvidia/gpus/0000:9f:00.0/information",
                   "Model: \t\t NVIDIA H100\nDevice Minor: \t 1\nGPU Excluded:\t Yes\n");
    const Driver driver = probe("0000:3b:00.0 code 0\n");
    ASSERT_THAT(driver.gpus, SizeIs(2));
    EXPECT_EQ(driver.gpus[0].model, "NVIDIA H100");
    EXPECT_EQ(driver.gpus[1].state, State::denied);
}

TEST_F(HealthProbe, DriverOfOthersDoesNotMatterInAContainerWithoutGpus) {
    std::filesystem::remove(machine_.root() / "dev/nvidiactl");
    EXPECT_EQ(probe("init 9\n").state, Driver::State::absent);
}

TEST_F(HealthProbe, DriverThatDoesNotStartGivesItsReason) {
    const Driver driver = probe("init 9\n");
    EXPECT_EQ(driver.state, Driver::State::failed);
    EXPECT_EQ(driver.error, "Driver Not Loaded (9)");
}

TEST_F(HealthProbe, MissingLibraryMattersOnlyWhereGpusAreGiven) {
    places_.nvml = "libno-such-library.so.1";
    EXPECT_EQ(probe_driver(places_).state, Driver::State::no_library);
    std::filesystem::remove(machine_.root() / "dev/nvidiactl");
    EXPECT_EQ(probe_driver(places_).state, Driver::State::absent);
}

TEST_F(HealthProbe, ReadsXidsFromTheKernelLog) {
    std::ofstream(machine_.root() / "dev/kmsg")
        << "6,100,1000,-;usb 1-1: new device\n"
        << "3,101,5093242,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>\n"
        << "3,102,5093243,-;NVRM: Xid (PCI:0000:3b:00): what is this\n"
        << "3,102,5093244,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:3b:00): 79'\n"
        << "12,102,5093245,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a user\n"
        << "3,103,6000000,-;NVRM: Xid (PCI:0000:9f:00): 31, pid=7, name=python3\n";
    const Driver driver = probe("0000:3b:00.0 code 0\n");
    ASSERT_THAT(driver.xids, SizeIs(2));
    EXPECT_EQ(driver.xids[0].address, "0000:3b:00");
    EXPECT_EQ(driver.xids[0].number, 79);
    EXPECT_EQ(driver.xids[0].at, 5093242U);
    EXPECT_EQ(driver.xids[1].number, 31);
}

TEST_F(HealthProbe, AnswerOfTheProbeProcessKeepsAllFacts) {
    Probed probed;
    probed.driver = probe("0000:9f:00.0 action 2\n0000:9f:00.0 pid 4711\n");
    probed.driver.xids = {{"0000:9f:00", 48, 12}};
    probed.cpus = {{3, 0xfedcba9876543210, false, 12.5}};
    probed.copied_per_second = 1e10;
    const auto read = read_answer(write_answer(probed));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(write_answer(*read), write_answer(probed));
    EXPECT_EQ(read->driver.gpus.at(1).recovery_action, 2);
    EXPECT_EQ(read->cpus.at(0).digest, 0xfedcba9876543210);
    EXPECT_FALSE(read_answer("{\"driver\": {").has_value());
    EXPECT_FALSE(read_answer("").has_value());
}

TEST_F(HealthProbe, DriverIsRecognizedByItsFiles) {
    EXPECT_TRUE(has_driver(places_));
    testing::MachineFolder plain;
    EXPECT_FALSE(has_driver({plain.root(), ""}));
}

TEST_F(HealthProbe, ReadsTheFolderOfTheLogs) {
    FolderProbe probe;
    const Folder folder = probe.ask(machine_.root(), std::chrono::seconds(30));
    EXPECT_EQ(folder.path, machine_.root());
    EXPECT_GT(folder.total, 0U);
    EXPECT_FALSE(folder.silent);
    const Folder missing = probe.ask("/no/such/folder", std::chrono::seconds(30));
    EXPECT_EQ(missing.total, 0U);
    EXPECT_FALSE(missing.silent);
}

TEST_F(HealthProbe, FileSystemThatDoesNotAnswerDelaysOneCheckOnly) {
    std::promise<void> server_is_back;
    std::atomic<int> asked = 0;
    FolderProbe probe([&, back = server_is_back.get_future().share()](const std::string& path) {
        ++asked;
        back.wait();
        return Folder{path, 1, 2};
    });
    EXPECT_TRUE(probe.ask("/logs", std::chrono::milliseconds(1)).silent);
    // Without an end: it must not wait.
    EXPECT_TRUE(probe.ask("/logs", std::chrono::hours(1)).silent);

    server_is_back.set_value();

    Folder folder = probe.ask("/logs", std::chrono::seconds(30));
    while (folder.silent) {  // The first thread has not told its answer yet.
        folder = probe.ask("/logs", std::chrono::seconds(30));
    }
    EXPECT_EQ(folder.total, 2U);
    EXPECT_EQ(asked, 2) << "one thread for each answer";
}

TEST_F(HealthProbe, ReadsTheLimitsAndTheSharedMemory) {
    const Host host = probe_host(places_);
    EXPECT_EQ(host.shared_memory.total, 0U);  // This machine has no dev/shm.
    EXPECT_FALSE(host.has_rdma);
    EXPECT_GT(host.open_files, 0U);
    EXPECT_EQ(host.tasks_most, Host::kUnlimited);
    machine_.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n");
    machine_.write("proc/self/cgroup", "0::/pod/container\n");
    machine_.write("sys/fs/cgroup/pod/pids.max", "100\n");
    machine_.write("sys/fs/cgroup/pod/pids.current", "97\n");
    EXPECT_EQ(probe_host(places_).tasks_most, 100U);
    EXPECT_EQ(probe_host(places_).tasks_used, 97U);
    std::filesystem::create_directories(machine_.root() / "sys/class/infiniband/mlx5_0");
    std::filesystem::create_directories(machine_.root() / "dev/shm");
    EXPECT_TRUE(probe_host(places_).has_rdma);
    EXPECT_GT(probe_host(places_).shared_memory.total, 0U);
}

TEST_F(HealthProbe, ReadsTheLinkAndLeavesOutWhatTheKernelDoesNotSay) {
    machine_.write("sys/class/net/eth0/carrier", "1\n");
    machine_.write("sys/class/net/eth0/speed", "-1\n");
    machine_.write("sys/class/net/eth0/carrier_changes", "4\n");
    Link link = probe_link(places_, "eth0");
    EXPECT_EQ(link.carrier, true);
    EXPECT_FALSE(link.megabits.has_value());
    EXPECT_EQ(link.carrier_changes, 4U);
    machine_.write("sys/class/net/eth0/speed", "25000\n");
    EXPECT_EQ(probe_link(places_, "eth0").megabits, 25000U);
    link = probe_link(places_, "eth7");
    EXPECT_FALSE(link.carrier.has_value());
}

TEST_F(HealthProbe, MemoryThatIsLeftIsLimitedByTheCgroup) {
    machine_.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n");
    machine_.write("proc/self/cgroup", "0::/pod/container\n");
    machine_.write("sys/fs/cgroup/pod/memory.max", "5000\n");
    machine_.write("sys/fs/cgroup/pod/memory.current", "4000\n");
    machine_.write("sys/fs/cgroup/pod/memory.stat", "anon 1000\ninactive_file 2500\n");
    machine_.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
    machine_.write("sys/fs/cgroup/pod/container/memory.current", "4000\n");
    EXPECT_EQ(memory_left(machine_.root()), 3500U);
    machine_.write("sys/fs/cgroup/pod/container/memory.max", "3000\n");
    EXPECT_EQ(memory_left(machine_.root()), 0U);
}

TEST(HealthLoad, AllCpusComputeTheSameProduct) {
    Probed probed;
    probe_cpus({std::chrono::milliseconds(20), std::chrono::milliseconds(5)}, probed);
    ASSERT_FALSE(probed.cpus.empty());
    for (const CpuResult& result : probed.cpus) {
        EXPECT_EQ(result.digest, probed.cpus.front().digest);
        EXPECT_TRUE(result.repeats);
        EXPECT_GT(result.products_per_second, 0);
    }
    EXPECT_GT(probed.copied_per_second, 0);
}

TEST_F(HealthProbe, ProcessHoldsMemoryUntilItHasEndedAndTheDriverShowsItNoMore) {
    constexpr pid_t kDead = 1 << 23;  // Larger than any process's number.
    machine_.tell_nvml("0000:3b:00.0 code 15\n0000:9f:00.0 code 0\n");
    ::setenv("STAND_IN_NVML", machine_.nvml_facts().c_str(), 1);
    const GpuHolders gpus(places_);
    testing::show_holder(machine_.holders(), kDead);
    std::set<pid_t> pids{::getpid(), kDead, kDead + 1};
    gpus.drop_free(pids);
    EXPECT_THAT(pids, ElementsAre(::getpid(), kDead));
    testing::show_holder(machine_.holders(), 0);
    gpus.drop_free(pids);
    EXPECT_THAT(pids, ElementsAre(::getpid()));
}

TEST_F(HealthProbe, WithoutNvmlOnlyTheEndOfAProcessCounts) {
    places_.nvml = "libno-such-library.so.1";
    std::set<pid_t> pids{::getpid(), 1 << 23};
    GpuHolders(places_).drop_free(pids);
    EXPECT_THAT(pids, ElementsAre(::getpid()));
}

}  // namespace
}  // namespace regroup::health
