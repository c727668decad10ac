// SPDX-License-Identifier: Apache-2.0
//
// The check of a node with the real probe process, on a folder that looks like a machine.
#include "agent/health/node_check.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

#include "tests/support/machine_folder.h"
#include "tests/support/matchers.h"

namespace regroup::health {
namespace {

class NodeCheckTest : public ::testing::Test {
   protected:
    NodeCheckTest() {
        options_.level = Level::basic;
        options_.places = {machine_.root(), STAND_IN_NVML_LIBRARY};
        options_.program = REGROUP_PROGRAM;
        machine_.write("dev/shm/.keep", "");
        ::setenv("STAND_IN_NVML", machine_.nvml_facts().c_str(), 1);
    }

    void has_gpu(const std::string& facts) const {
        machine_.add_gpu("0000:3b:00.0", 0);
        machine_.tell_nvml(facts);
    }
    /// The names of the findings. `at_once_`: they were there when run() returned.
    std::vector<std::string> check(Duration limit = std::chrono::seconds(30)) {
        std::optional<std::vector<Finding>> found;
        NodeCheck node(io_, launcher_, options_);
        node.run(limit, false, [&](const auto& findings) { found = findings; });
        at_once_ = found.has_value();
        io_.restart();
        io_.run();
        EXPECT_TRUE(found.has_value());
        std::vector<std::string> names;
        for (const Finding& finding : found.value_or(std::vector<Finding>())) {
            names.emplace_back(to_string(finding.check));
            text_ = finding.text;
        }
        cpus_ = node.probed().cpus.size();
        return names;
    }

    testing::MachineFolder machine_;
    boost::asio::io_context io_;
    agent::LinuxLauncher launcher_{io_};
    CheckOptions options_;
    bool at_once_ = false;
    std::string text_;
    std::size_t cpus_ = 0;
};

TEST_F(NodeCheckTest, NodeWithoutADriverIsCheckedAtOnceAndStartsNoProcess) {
    options_.program = "/no/such/program";
    EXPECT_THAT(check(), IsEmpty());
    EXPECT_TRUE(at_once_);
    EXPECT_FALSE(needs_process(options_));
}

TEST_F(NodeCheckTest, CheckThatIsOffFindsNothing) {
    has_gpu("0000:3b:00.0 code 15\n");
    options_.level = Level::off;
    EXPECT_THAT(check(), IsEmpty());
    EXPECT_TRUE(at_once_);
}

TEST_F(NodeCheckTest, DriverIsAskedByAnotherProcess) {
    has_gpu("0000:3b:00.0 code 0\n");
    EXPECT_TRUE(needs_process(options_));
    EXPECT_THAT(check(), IsEmpty());
    EXPECT_FALSE(at_once_);
    has_gpu("0000:3b:00.0 code 15\n");
    EXPECT_THAT(check(), ElementsAre("gpu-lost"));
}

TEST_F(NodeCheckTest, HiddenGpusAreNotAskedFor) {
    has_gpu("0000:3b:00.0 code 15\n");
    options_.needs.visible_gpus = "";
    EXPECT_THAT(check(), IsEmpty());
    EXPECT_TRUE(at_once_);
}

TEST_F(NodeCheckTest, DriverThatDoesNotAnswerRefusesTheNodeAfterTheLimit) {
    has_gpu("hang\n");
    EXPECT_THAT(check(std::chrono::milliseconds(1100)), ElementsAre("gpu-driver"));
    EXPECT_THAT(text_, HasSubstr("has not answered within 1 s"));
}

TEST_F(NodeCheckTest, XidIsOfThisJobIfTheLogDidNotHaveItAtTheFirstCheck) {
    has_gpu("0000:3b:00.0 code 0\n");
    NodeCheck node(io_, launcher_, options_);
    const auto found = [&] {
        std::string names;
        node.run(std::chrono::seconds(30), false, [&](const auto& findings) {
            for (const Finding& finding : findings) {
                names += std::string(to_string(finding.check)) + " ";
            }
        });
        io_.restart();
        io_.run();
        return names;
    };
    // By a clock that is ahead of all others.
    const std::string xid = ",-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n";
    machine_.write("dev/kmsg", "3,1,9000000000000000" + xid);
    EXPECT_EQ(found(), "gpu-xid ");
    machine_.write("dev/kmsg", "3,1,9000000000000000" + xid + "3,2,9000000000000001" + xid);
    EXPECT_EQ(found(), "gpu-xid-fatal gpu-xid ");
}

// As by a batch system that suspends the job, or a machine that is paused.
TEST_F(NodeCheckTest, TimeInWhichLauncherAndProbeAreStoppedDoesNotCount) {
    has_gpu("0000:3b:00.0 code 0\n");
    std::optional<std::vector<Finding>> found;
    NodeCheck node(io_, launcher_, options_);
    constexpr Duration kLimit = std::chrono::seconds(2);
    node.run(kLimit, false, [&](const auto& findings) { found = findings; });
    ASSERT_EQ(launcher_.children().size(), 1U);
    const pid_t probe = *launcher_.children().begin();
    ASSERT_EQ(::kill(probe, SIGSTOP), 0);
    boost::asio::steady_timer(io_, kLimit + std::chrono::milliseconds(100)).wait();
    ASSERT_EQ(::kill(probe, SIGCONT), 0);
    io_.run();
    ASSERT_TRUE(found.has_value());
    EXPECT_THAT(*found, IsEmpty());
}

TEST_F(NodeCheckTest, CrashOfTheProbeIsAWarning) {
    has_gpu("crash\n");
    EXPECT_THAT(check(), ElementsAre("probe"));
    EXPECT_THAT(text_, HasSubstr("SIGABRT"));
    options_.program = "/no/such/program";
    EXPECT_THAT(check(), ElementsAre("probe"));
    EXPECT_THAT(text_, HasSubstr("could not be started: "));
}

TEST_F(NodeCheckTest, SecondCheckDropsTheFirst) {
    has_gpu("0000:3b:00.0 code 0\n");
    NodeCheck node(io_, launcher_, options_);
    int first = 0;
    int second = 0;
    node.run(std::chrono::seconds(30), false, [&](const auto&) { ++first; });
    node.run(std::chrono::seconds(30), false, [&](const auto&) { ++second; });
    io_.run();
    EXPECT_EQ(first, 0);
    EXPECT_EQ(second, 1);
}

TEST_F(NodeCheckTest, FullCheckComputesOnTheCpus) {
    options_.level = Level::full;
    EXPECT_THAT(check(), Not(Contains("cpu-result")));
    EXPECT_GT(cpus_, 0U);
}

TEST_F(NodeCheckTest, LightCheckAsksTheDriverAndComputesNothing) {
    has_gpu("0000:3b:00.0 code 15\n");
    options_.level = Level::full;
    NodeCheck node(io_, launcher_, options_);
    std::vector<Finding> found;
    node.run_lightly(std::chrono::seconds(30), [&](const auto& findings) { found = findings; });
    io_.run();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].check, Check::gpu_lost);
    EXPECT_TRUE(node.probed().cpus.empty());
}

TEST_F(NodeCheckTest, LinkOfTheLoopbackIsNotChecked) {
    NodeCheck node(io_, launcher_, options_);
    EXPECT_THAT(node.check_link("127.0.0.1"), IsEmpty());
    EXPECT_THAT(node.check_link(""), IsEmpty());
}

}  // namespace
}  // namespace regroup::health
