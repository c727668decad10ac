// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/health/findings.h"
#include "tests/support/matchers.h"

namespace regroup::health {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

Gpu gpu(const std::string& address, Gpu::State state = Gpu::State::answers) {
    Gpu result;
    result.address = address;
    result.uuid = "GPU-" + address.substr(5, 2);
    result.state = state;
    return result;
}

/// A driver with four healthy GPUs.
Driver four_gpus() {
    Driver driver;
    driver.state = Driver::State::answers;
    driver.gpus = {gpu("0000:3b:00.0"), gpu("0000:5e:00.0"), gpu("0000:86:00.0"),
                   gpu("0000:9f:00.0")};
    return driver;
}

std::vector<std::string> names(const std::vector<Finding>& findings) {
    std::vector<std::string> all;
    for (const Finding& finding : findings) {
        all.push_back((finding.refuses() ? "" : "warning ") +
                      std::string(to_string(finding.check)));
    }
    return all;
}

class HealthOfOneGpu : public ::testing::Test {
   protected:
    std::vector<std::string> found() const { return names(judge_driver(driver_, needs_)); }
    std::string text() const { return judge_driver(driver_, needs_).at(0).text; }

    Driver driver_ = four_gpus();
    Gpu& second_ = driver_.gpus[1];
    Needs needs_;
};

TEST_F(HealthOfOneGpu, HealthyGpusGiveNoFinding) {
    second_.clock_reasons = 0x1 | 0x2 | 0x4;  // Idle, application clocks, power cap.
    second_.recovery_action = 0;
    second_.memory_used = kGiB / 4;
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(HealthOfOneGpu, LostGpuRefusesTheNodeAndIsNamedAsInNvidiaSmi) {
    second_.state = Gpu::State::lost;
    EXPECT_THAT(found(), ElementsAre("gpu-lost"));
    EXPECT_EQ(text(), "GPU 1 (0000:5e:00.0) has fallen off the bus; restart this machine");
}

TEST_F(HealthOfOneGpu, MissingOrFailingGpuRefusesTheNode) {
    second_.state = Gpu::State::missing;
    EXPECT_THAT(found(), ElementsAre("gpu-missing"));
    second_.state = Gpu::State::failed;
    second_.error = "GPU requires reset (16)";
    EXPECT_THAT(found(), ElementsAre("gpu-error"));
    EXPECT_THAT(text(), HasSubstr("does not answer: GPU requires reset (16)"));
}

TEST_F(HealthOfOneGpu, EachRecoveryActionOfTheDriverRefusesTheNodeAndSaysWhatToDo) {
    const std::vector<std::string> cures = {"run nvidia-smi --gpu-reset -i 1", "restart it",
                                            "nvidia-smi --gpu-reset -i 1", "drained and reset",
                                            "recovery action 5"};
    for (int action = 1; action <= 5; ++action) {
        second_.recovery_action = action;
        EXPECT_THAT(found(), ElementsAre("gpu-recovery"));
        EXPECT_THAT(text(), HasSubstr(cures.at(static_cast<std::size_t>(action - 1))));
    }
}

TEST_F(HealthOfOneGpu, FailedRemapRefusesAndPendingRemapWarns) {
    second_.remap_pending = true;
    EXPECT_THAT(found(), ElementsAre("warning gpu-remap-pending"));
    second_.remap_failed = true;
    EXPECT_THAT(found(), ElementsAre("gpu-remap-failed"));
}

TEST_F(HealthOfOneGpu, MemoryErrorsAndThrottledClocksWarn) {
    second_.uncorrected_errors = 3;
    second_.clock_reasons = 0x8 | 0x40;
    EXPECT_THAT(found(), ElementsAre("warning gpu-memory-errors", "warning gpu-clocks"));
    EXPECT_THAT(judge_driver(driver_, needs_)[1].text,
                AllOf(HasSubstr("too hot (hardware limit)"), Not(HasSubstr("slows it down"))));
}

TEST_F(HealthOfOneGpu, LeftOverProcessIsNamedBeforeTheJobHasRun) {
    second_.processes = {{4711, 40 * kGiB, "python3"}};
    second_.memory_used = 41 * kGiB;
    EXPECT_THAT(found(), ElementsAre("warning gpu-memory-in-use"));
    EXPECT_THAT(text(), HasSubstr("41 GiB of its memory in use by pid 4711 (python3)"));
    needs_.has_run = true;  // Now it may be a worker of this job.
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(HealthOfOneGpu, MemoryInUseWithoutAVisibleProcessIsReported) {
    second_.memory_used = 2 * kGiB;
    EXPECT_THAT(text(), HasSubstr("2 GiB of its memory in use by a process that cannot be seen"));
}

TEST_F(HealthOfOneGpu, XidSinceTheStartRefusesIfItIsFatalAndOlderOnesWarn) {
    needs_.began = 1000;
    driver_.xids = {{"0000:5e:00", 79, 500}};
    EXPECT_THAT(found(), ElementsAre("warning gpu-xid"));
    driver_.xids = {{"0000:5e:00", 79, 1500}, {"0000:5e:00", 79, 1600}};
    EXPECT_THAT(found(), ElementsAre("gpu-xid-fatal"));
    EXPECT_THAT(text(), HasSubstr("Xid 79 (2 times) since this launcher started"));
}

TEST_F(HealthOfOneGpu, XidOfAnotherAddressIsNotOfThisGpu) {
    for (const char* address : {"", "0", "0000", "0000:5e", "0000:5e:0", "0000:5e:01", "[1]: x"}) {
        driver_.xids = {{address, 79, 1500}};
        EXPECT_THAT(found(), ElementsAre()) << address;
    }
}

TEST_F(HealthOfOneGpu, XidOfAProgramIsReportedOnlyIfItIsOfThisJob) {
    needs_.began = 1000;
    driver_.xids = {{"0000:5e:00", 31, 500}};
    EXPECT_THAT(found(), IsEmpty());
    driver_.xids = {{"0000:5e:00", 31, 1500}};
    EXPECT_THAT(found(), ElementsAre("warning gpu-xid"));
    EXPECT_THAT(text(), HasSubstr("mostly the program has caused it"));
}

TEST_F(HealthOfOneGpu, GpuThatTheJobDoesNotSeeIsNotJudged) {
    second_.state = Gpu::State::lost;
    driver_.xids = {{"0000:5e:00", 79, 1}};
    needs_.visible_gpus = "0,2";
    EXPECT_THAT(found(), IsEmpty());
    needs_.visible_gpus = "0,1";
    EXPECT_THAT(found(), ElementsAre("gpu-lost", "gpu-xid-fatal"));
    needs_.visible_gpus = "GPU-86";
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(HealthOfOneGpu, IndicesCountOnlyTheGpusThatThisProcessMayUse) {
    driver_.gpus[0].state = Gpu::State::denied;
    second_.state = Gpu::State::lost;
    needs_.visible_gpus = "0";
    EXPECT_THAT(found(), ElementsAre("gpu-lost"));
}

// With different models CUDA numbers the fastest first, which may be any of them.
TEST_F(HealthOfOneGpu, IndexOfAGpuAmongDifferentModelsIsUncertainUnlessCudaFollowsTheBus) {
    needs_.visible_gpus = "1";
    second_.state = Gpu::State::lost;
    EXPECT_THAT(found(), ElementsAre("gpu-lost"));
    driver_.gpus[0].model = "A small one";
    EXPECT_THAT(found(), ElementsAre("warning gpu-lost"));
    needs_.gpu_order = "PCI_BUS_ID";
    EXPECT_THAT(found(), ElementsAre("gpu-lost"));
}

TEST_F(HealthOfOneGpu, LostGpuOnlyWarnsWhileItIsUncertainWhetherTheJobUsesIt) {
    second_.state = Gpu::State::lost;
    second_.uuid = "";
    for (const char* visible : {"MIG-0fa1", "GPU-5e"}) {
        needs_.visible_gpus = visible;
        EXPECT_THAT(found(), ElementsAre("warning gpu-lost"));
    }
}

TEST_F(HealthOfOneGpu, TooFewGpusForTheWorkersRefuseTheNode) {
    needs_.gpus = 4;
    EXPECT_THAT(found(), IsEmpty());
    needs_.gpus = 5;
    EXPECT_THAT(found(), ElementsAre("gpu-count"));
    EXPECT_THAT(text(), StartsWith("the workers of this node need 5 GPUs, and 4 can be used"));
    second_.state = Gpu::State::lost;  // This alone explains it.
    EXPECT_THAT(found(), ElementsAre("gpu-lost"));
}

TEST(HealthOfTheDriver, BrokenOrSilentDriverRefusesAndAMissingLibraryWarns) {
    Driver driver;
    EXPECT_THAT(judge_driver(driver, {}), IsEmpty());
    driver.state = Driver::State::failed;
    driver.error = "Driver Not Loaded (9)";
    EXPECT_THAT(names(judge_driver(driver, {})), ElementsAre("gpu-driver"));
    driver.state = Driver::State::silent;
    driver.limit = 60;
    EXPECT_THAT(judge_driver(driver, {}).at(0).text, HasSubstr("not answered within 60 s"));
    EXPECT_THAT(names(judge_driver(driver, {})), ElementsAre("gpu-driver"));
    driver.state = Driver::State::no_library;
    EXPECT_THAT(names(judge_driver(driver, {})), ElementsAre("warning gpu-library"));
    driver.state = Driver::State::crashed;
    EXPECT_THAT(names(judge_driver(driver, {})), ElementsAre("warning probe"));
}

TEST(HealthOfTheDriver, NoGpuIsUsedIfCudaVisibleDevicesHidesAll) {
    EXPECT_TRUE(may_use_gpus(std::nullopt));
    EXPECT_TRUE(may_use_gpus("0,1"));
    EXPECT_TRUE(may_use_gpus(" GPU-aa"));
    EXPECT_FALSE(may_use_gpus(""));
    EXPECT_FALSE(may_use_gpus("-1"));
    EXPECT_FALSE(may_use_gpus("NoDevFiles"));
}

Host roomy() {
    Host host;
    host.shared_memory = {"/dev/shm", 8 * kGiB, 8 * kGiB};
    host.log_folder = Folder{"runs/7", 8 * kGiB, 8 * kGiB};
    return host;
}

TEST(HealthOfTheHost, UsualLimitsGiveNoFindingForAJobOfAHundredRanks) {
    Host host = roomy();
    host.open_files = 1024;
    host.locked_memory = 8 << 20;
    Needs needs;
    needs.workers = 8;
    needs.ranks = 128;
    EXPECT_THAT(judge_host(host, needs), IsEmpty());
}

TEST(HealthOfTheHost, LogFolderThatDoesNotAnswerWarns) {
    Host host = roomy();
    host.log_folder = Folder{"/nfs/logs"};
    host.log_folder->silent = true;
    const auto found = judge_host(host, Needs());
    EXPECT_THAT(names(found), ElementsAre("warning disk-space"));
    EXPECT_THAT(found[0].text, HasSubstr("--log-dir /nfs/logs does not answer"));
}

TEST(HealthOfTheHost, LimitsThatTheJobOutgrowsWarn) {
    Host host = roomy();
    host.open_files = 1024;
    host.locked_memory = 8 << 20;
    host.has_rdma = true;
    host.tasks_most = 600;
    host.tasks_used = 89;
    host.shared_memory.free = 64 << 20;
    host.log_folder->free = 10 << 20;
    Needs needs;
    needs.workers = 8;
    needs.ranks = 512;
    const auto found = judge_host(host, needs);
    EXPECT_THAT(names(found),
                ElementsAre("warning open-files", "warning locked-memory", "warning tasks",
                            "warning shared-memory", "warning disk-space"));
    EXPECT_THAT(found[0].text, HasSubstr("is 1024, and a worker of 512 ranks may need 2304"));
    EXPECT_THAT(found[1].text, HasSubstr("is 8 MiB"));
    EXPECT_THAT(found[2].text,
                HasSubstr("may have 600 processes and threads (pids.max) and has 89, and 8 workers "
                          "may need 512"));
    EXPECT_THAT(found[3].text,
                HasSubstr("/dev/shm has 64 MiB free of 8 GiB, and 8 workers may need 256 MiB"));
    EXPECT_THAT(found[4].text, HasSubstr("the disk of --log-dir runs/7 has only 10 MiB free"));
}

TEST(HealthOfTheHost, RefusedSystemCallsWarnWithTheirNames) {
    Host host = roomy();
    host.refused_calls = {"pidfd_open", "clone3"};
    const auto found = judge_host(host, Needs());
    EXPECT_THAT(names(found), ElementsAre("warning system-calls"));
    EXPECT_THAT(found[0].text, HasSubstr("pidfd_open, clone3"));
}

TEST(HealthOfTheLink, LinkWithoutCarrierOrWithLowSpeedWarns) {
    Link link{"eth0", true, 10000, 3};
    EXPECT_THAT(judge_link(link, link), IsEmpty());
    link.megabits = 100;
    EXPECT_THAT(names(judge_link(link, link)), ElementsAre("warning link-speed"));
    link.carrier = false;
    EXPECT_THAT(names(judge_link(link, link)), ElementsAre("warning link-carrier"));
    EXPECT_THAT(judge_link({}, {}), IsEmpty());
}

TEST(HealthOfTheLink, LostCarrierSinceTheStartWarns) {
    const Link first{"eth0", true, 10000, 3};
    Link later = first;
    later.carrier_changes = 5;
    const auto found = judge_link(later, first);
    EXPECT_THAT(names(found), ElementsAre("warning link-unstable"));
    EXPECT_THAT(found[0].text, HasSubstr("eth0 has lost or found its carrier 2 times"));
}

TEST(HealthOfTheCpus, CpuWithAnotherProductRefusesTheNode) {
    std::vector<CpuResult> cpus = {{0, 7, true, 100}, {1, 7, true, 100}, {2, 7, true, 100}};
    EXPECT_THAT(judge_cpus(cpus), IsEmpty());
    cpus[1].digest = 8;
    EXPECT_THAT(names(judge_cpus(cpus)), ElementsAre("cpu-result"));
    EXPECT_THAT(judge_cpus(cpus)[0].text, StartsWith("CPU 1 computes another product"));
    cpus[1] = {1, 7, false, 100};
    EXPECT_THAT(names(judge_cpus(cpus)), ElementsAre("cpu-result"));
}

TEST(HealthOfTheCpus, CpuThatIsMuchSlowerThanTheOthersWarns) {
    const std::vector<CpuResult> cpus = {{0, 7, true, 100}, {1, 7, true, 90}, {2, 7, true, 40}};
    const auto found = judge_cpus(cpus);
    EXPECT_THAT(names(found), ElementsAre("warning cpu-speed"));
    EXPECT_THAT(found[0].text, StartsWith("CPU 2 computes at 44 %"));
}

TEST(Health, FaultIsTheFirstRefusalAndCountsTheOthers) {
    std::vector<Finding> findings = {{Check::open_files, "few files"}};
    EXPECT_EQ(fault(findings), "");
    findings.push_back({Check::gpu_lost, "GPU 1 is lost"});
    EXPECT_EQ(fault(findings), "GPU 1 is lost");
    findings.push_back({Check::gpu_lost, "GPU 2 is lost"});
    findings.push_back({Check::gpu_lost, "GPU 3 is lost", false});
    EXPECT_EQ(fault(findings), "GPU 1 is lost (and 1 more)");
}

TEST(Health, ManualSaysOfEachCheckWhetherItRefusesTheNode) {
    std::ifstream manual(REGROUP_OPERATING_MANUAL);
    ASSERT_TRUE(manual.good()) << REGROUP_OPERATING_MANUAL;
    std::vector<std::string> rows;
    for (std::string line; std::getline(manual, line);) {
        if (line.starts_with("| `")) {
            rows.push_back(line);
        }
    }
    for (std::size_t index = 0; index < kChecks; ++index) {
        const auto check = static_cast<Check>(index);
        const std::string effect = refuses(check) ? "refused" : "warning";
        const auto row =
            std::string("| `") + std::string(to_string(check)) + "` | " + effect + " |";
        EXPECT_THAT(rows, ::testing::Contains(StartsWith(row)));
    }
}

TEST(Health, BytesAreShownInTheUnitOfTheirSize) {
    EXPECT_EQ(bytes_text(0), "0 MiB");
    EXPECT_EQ(bytes_text(64 << 20), "64 MiB");
    EXPECT_EQ(bytes_text(kGiB + kGiB / 2), "1.5 GiB");
    EXPECT_EQ(bytes_text(40 * kGiB + kGiB / 2), "40 GiB");
}

TEST(HealthClock, OnlyADifferenceThatAMessageCannotCauseIsAWarning) {
    EXPECT_TRUE(judge_clock(std::chrono::milliseconds(1999)).empty());
    EXPECT_TRUE(judge_clock(std::chrono::milliseconds(-1999)).empty());
    for (const Duration ahead :
         {Duration(std::chrono::hours(1)), Duration(-std::chrono::hours(1))}) {
        const std::vector<Finding> findings = judge_clock(ahead);
        ASSERT_EQ(findings.size(), 1U);
        EXPECT_EQ(findings.front().check, Check::clock);
        EXPECT_FALSE(findings.front().refuses());
    }
    EXPECT_NE(judge_clock(std::chrono::hours(1)).front().text,
              judge_clock(-std::chrono::hours(1)).front().text);
}

}  // namespace
}  // namespace regroup::health
