// SPDX-License-Identifier: Apache-2.0
//
// Waiting for the GPU memory of ended processes, with the real process that asks the driver.
#include "agent/health/gpu_release.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "tests/support/gpu_holders.h"
#include "tests/support/machine_folder.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using std::chrono::seconds;
using testing::show_holder;

/// No process has such a number: it is larger than the kernel's own limit.
constexpr pid_t kDead = 1 << 23;
constexpr pid_t kDeadToo = kDead + 1;
constexpr std::uint64_t kSuccessor = 7;

class GpuReleaseTest : public ::testing::Test {
   protected:
    GpuReleaseTest() {
        machine_.add_gpu("0000:3b:00.0", 0);
        machine_.tell_nvml("0000:3b:00.0 code 0\n");
        ::setenv("STAND_IN_NVML", machine_.nvml_facts().c_str(), 1);
        options_.wanted = true;
        options_.places = {machine_.root(), STAND_IN_NVML_LIBRARY};
        options_.program = REGROUP_PROGRAM;
        options_.limit = seconds(1000);
    }

    GpuRelease& gpus() {
        if (!gpus_) {
            gpus_.emplace(io_, clock_, launcher_, options_,
                          [this](const std::string& line) { said_ = line; });
        }
        return *gpus_;
    }
    /// Of a successor that is to get its place now.
    bool is_held_back() {
        const int before = given_;
        gpus().when_free(kSuccessor, [this] { ++given_; });
        return given_ == before;
    }
    bool runs_until(const std::function<bool()>& condition) {
        const Instant deadline = after(clock_.now(), seconds(60));
        while (!condition() && clock_.now() < deadline) {
            io_.restart();
            io_.run_for(std::chrono::milliseconds(5));
        }
        return condition();
    }
    bool is_given() {
        return runs_until([this] { return given_ == 1; });
    }
    /// The driver has been asked again, and has named a holder.
    bool is_asked_again() {
        return runs_until(
            [this, begin = machine_.asked()] { return machine_.asked() > begin + 2; });
    }

    testing::MachineFolder machine_;
    SteadyClock clock_;
    boost::asio::io_context io_;
    LinuxLauncher launcher_{io_};
    GpuReleaseOptions options_;
    std::optional<GpuRelease> gpus_;
    std::string said_;
    int given_ = 0;
};

TEST_F(GpuReleaseTest, NothingIsHeldBackBeforeAnEnd) {
    EXPECT_FALSE(is_held_back());
    EXPECT_THAT(launcher_.children(), IsEmpty());
}

TEST_F(GpuReleaseTest, WorkersWithoutGpusAreNotHeldBackAndNoProcessStarts) {
    options_.wanted = false;
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    gpus().begin();
    EXPECT_FALSE(is_held_back());
    EXPECT_THAT(launcher_.children(), IsEmpty());
}

TEST_F(GpuReleaseTest, DriverIsAskedOnlyWhenASuccessorIsLikely) {
    gpus().add({kDead});
    EXPECT_THAT(launcher_.children(), IsEmpty());
    gpus().begin();
    EXPECT_THAT(launcher_.children(), SizeIs(1));
}

TEST_F(GpuReleaseTest, SuccessorIsHeldBackUntilTheMemoryIsFree) {
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    ASSERT_TRUE(is_asked_again());
    EXPECT_EQ(given_, 0);
    show_holder(machine_.holders(), 0);
    EXPECT_TRUE(is_given());
    EXPECT_FALSE(is_held_back());
    // The process that asked ends.
    EXPECT_TRUE(runs_until([this] { return launcher_.children().empty(); }));
    EXPECT_EQ(given_, 2);
}

TEST_F(GpuReleaseTest, SuccessorCanBeHurriedOrForgotten) {
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    EXPECT_TRUE(gpus().hurry(kSuccessor));
    EXPECT_EQ(given_, 1);
    EXPECT_FALSE(gpus().hurry(kSuccessor));
    ASSERT_TRUE(is_held_back());
    gpus().forget(kSuccessor);
    show_holder(machine_.holders(), 0);
    EXPECT_TRUE(runs_until([this] { return launcher_.children().empty(); }));
    EXPECT_EQ(given_, 1);
}

TEST_F(GpuReleaseTest, MemoryOfOthersDoesNotMatter) {
    show_holder(machine_.holders(), kDeadToo);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    EXPECT_TRUE(is_given());
}

TEST_F(GpuReleaseTest, ProcessesThatEndMeanwhileAreWaitedForToo) {
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    ASSERT_TRUE(is_asked_again());
    show_holder(machine_.holders(), kDeadToo);
    gpus().add({kDeadToo});
    ASSERT_TRUE(is_asked_again());
    EXPECT_EQ(given_, 0);
    show_holder(machine_.holders(), 0);
    EXPECT_TRUE(is_given());
}

TEST_F(GpuReleaseTest, ProcessWhoseThreadsStillRunMayHoldMemory) {
    options_.places.nvml = "libno-such-library.so.1";
    ProcessSpec spec;
    spec.executable = "/bin/sleep";
    spec.arguments = {"sleep", "1000"};
    auto process = launcher_.launch(spec);
    ASSERT_TRUE(process);
    gpus().add({process->pid()});
    ASSERT_TRUE(is_held_back());
    io_.run_for(std::chrono::milliseconds(50));
    EXPECT_EQ(given_, 0);
    process->signal(SIGKILL);
    EXPECT_TRUE(is_given());  // It is a zombie: not reaped yet.
}

TEST_F(GpuReleaseTest, MemoryThatIsNotFreedIsNamedAfterTheLimit) {
    options_.limit = std::chrono::milliseconds(50);
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    EXPECT_TRUE(is_given());
    EXPECT_THAT(said_, HasSubstr(std::to_string(kDead)));
    EXPECT_FALSE(is_held_back());
}

TEST_F(GpuReleaseTest, DriverThatDoesNotAnswerHoldsNobodyBackAfterTheLimit) {
    options_.limit = std::chrono::milliseconds(50);
    machine_.tell_nvml("hang\n");
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    EXPECT_TRUE(is_given());
    EXPECT_THAT(said_, HasSubstr(std::to_string(kDead)));
}

TEST_F(GpuReleaseTest, DriverThatCrashesTheProcessHoldsNobodyBack) {
    machine_.tell_nvml("crash\n");
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    EXPECT_TRUE(is_given());
    EXPECT_THAT(said_, HasSubstr("was ended by SIGABRT"));
    EXPECT_FALSE(is_held_back());
}

TEST_F(GpuReleaseTest, ProcessThatCannotStartHoldsNobodyBack) {
    options_.program = "/no/such/program";
    gpus().add({kDead});
    EXPECT_FALSE(is_held_back());
    EXPECT_THAT(said_, HasSubstr("/no/such/program"));
}

TEST_F(GpuReleaseTest, NothingIsToldAfterAStop) {
    options_.limit = std::chrono::milliseconds(50);
    show_holder(machine_.holders(), kDead);
    gpus().add({kDead});
    ASSERT_TRUE(is_held_back());
    gpus().stop();
    EXPECT_THAT(launcher_.children(), IsEmpty());
    io_.run_for(std::chrono::milliseconds(100));
    EXPECT_EQ(given_, 0);
    EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace regroup::agent
