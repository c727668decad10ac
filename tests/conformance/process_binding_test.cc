// SPDX-License-Identifier: Apache-2.0
// Tests that a launched program has the CPUs and the memory policy of its spec.
#include <cerrno>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <optional>
#include <sstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

/// Returns the value that follows "name:" in `text`, without blanks.
std::string status_field(const std::string& text, const std::string& name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + ":")) {
            std::istringstream rest(line.substr(name.size() + 1));
            std::string value;
            rest >> value;
            return value;
        }
    }
    return "no field " + name;
}

std::string our_cpus() {
    return status_field(read_file("/proc/self/status"), "Cpus_allowed_list");
}

/// The lowest and the highest of "0-3,8".
std::pair<int, int> ends_of(const std::string& list) {
    const std::size_t last = list.find_last_of(",-");
    return {std::stoi(list), std::stoi(last == list.npos ? list : list.substr(last + 1))};
}

class BindingTest : public ::testing::Test {
   protected:
    std::string output_of(ProcessSpec spec) {
        auto [read_end, write_end] = make_pipe();
        spec.stdout_fd = write_end.get();
        auto child = launcher_.launch(spec);
        write_end.reset();
        if (!child) {
            return child.error().detail;
        }
        return read_all(read_end.get());
    }

    std::string cpus_of(const std::vector<int>& cpus) {
        ProcessSpec spec = make_spec("/bin/cat", {"/proc/self/status"});
        spec.cpus = cpus;
        return status_field(output_of(spec), "Cpus_allowed_list");
    }

    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
};

TEST_F(BindingTest, ChildHasTheCpusOfItsSpecAndTheParentKeepsItsOwn) {
    const std::string before = our_cpus();
    const auto [lowest, highest] = ends_of(before);
    EXPECT_EQ(cpus_of({lowest}), std::to_string(lowest));
    EXPECT_EQ(cpus_of({highest}), std::to_string(highest));
    EXPECT_EQ(cpus_of({}), before);
    EXPECT_EQ(our_cpus(), before);
}

TEST_F(BindingTest, CpusBeyondTheMachineAreLeftOut) {
    const auto [lowest, highest] = ends_of(our_cpus());
    EXPECT_EQ(cpus_of({highest, ProcessSpec::kCpusMax - 1}), std::to_string(highest));
}

TEST_F(BindingTest, CpuSetWithoutAUsableCpuIsReportedAndNoChildIsLeft) {
    ProcessSpec spec = make_spec("/bin/true", {});
    spec.cpus = {ProcessSpec::kCpusMax - 2, ProcessSpec::kCpusMax - 1};
    const auto child = launcher_.launch(spec);
    ASSERT_FALSE(child);
    EXPECT_EQ(child.error().code, Errc::system);
    EXPECT_THAT(
        child.error().detail,
        HasSubstr("cannot start '/bin/true': sched_setaffinity to CPUs 65534,65535: Invalid"));
    EXPECT_TRUE(launcher_.children().empty());
}

TEST_F(BindingTest, ChildPrefersTheMemoryOfItsNodes) {
    ProcessSpec spec = make_spec("/bin/cat", {"/proc/self/numa_maps"});
    spec.memory_nodes = {0};
    const std::string maps = output_of(spec);
    if (maps.find("default") != maps.npos || maps.empty()) {
        GTEST_SKIP() << "this kernel or sandbox has no memory policies, or shows none";
    }
    EXPECT_THAT(maps, HasSubstr("prefer (many):0"));
}

TEST_F(BindingTest, MissingMemoryNodeIsReported) {
    ProcessSpec spec = make_spec("/bin/true", {});
    spec.memory_nodes = {ProcessSpec::kNumaNodesMax - 1};
    const auto child = launcher_.launch(spec);
    if (child.has_value()) {
        GTEST_SKIP() << "this kernel or sandbox has no memory policies";
    }
    EXPECT_THAT(child.error().detail, HasSubstr("set_mempolicy to NUMA nodes 1023: Invalid"));
    EXPECT_TRUE(launcher_.children().empty());
}

/// From here on set_mempolicy fails with `error` for this process: with every mode, or with `mode`.
bool refuse_memory_policy(unsigned error, std::optional<unsigned> mode) {
    std::vector<sock_filter> filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_mempolicy, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mode.value_or(0), 0,
                 static_cast<unsigned char>(mode ? 1 : 0)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                             .filter = filter.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Whether a launch with memory nodes succeeds all the same.
[[noreturn]] void launch_with_refusal(unsigned error, std::optional<unsigned> mode) {
    boost::asio::io_context io;
    LinuxLauncher launcher(io);
    ProcessSpec spec = make_spec("/bin/true", {});
    spec.memory_nodes = {0};
    const bool launched = refuse_memory_policy(error, mode) && launcher.launch(spec).has_value();
    ::_exit(launched ? 0 : 1);
}

TEST_F(BindingTest, KernelOrSandboxWithoutMemoryPoliciesIsNoFailure) {
    constexpr unsigned kPreferredMany = 5;
    EXPECT_EXIT(launch_with_refusal(ENOSYS, {}), ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(launch_with_refusal(EPERM, {}), ::testing::ExitedWithCode(0), "");
    // Also said of a node without memory that our cpuset permits.
    EXPECT_EXIT(launch_with_refusal(EINVAL, {}), ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(launch_with_refusal(EFAULT, {}), ::testing::ExitedWithCode(1), "");
    ProcessSpec spec = make_spec("/bin/true", {});
    spec.memory_nodes = {0};
    if (!launcher_.launch(spec)) {
        GTEST_SKIP() << "this machine refuses memory policies by itself";
    }
    EXPECT_EXIT(launch_with_refusal(EINVAL, kPreferredMany), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace regroup::agent
