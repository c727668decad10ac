// SPDX-License-Identifier: Apache-2.0
// The real out-of-memory killer, let loose in a memory cgroup of our own.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "agent/process/oom_evidence.h"
#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLimitBytes = std::size_t{64} << 20;
constexpr std::size_t kHungerBytes = std::size_t{512} << 20;
constexpr unsigned kLifeSeconds = 60;

/// Existing files only: a cgroup that offers no such file must not get one of ours.
bool write_text(const fs::path& file, const std::string& text) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// A new cgroup with a small limit of memory, removed in the end; nothing where the machine does
/// not permit that.
class SmallCgroup {
   public:
    SmallCgroup() {
        const std::string name = "regroup-test-" + std::to_string(::getpid());
        for (const auto& [parent, limit] :
             {std::pair("/sys/fs/cgroup", "memory.max"),
              std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes")}) {
            const fs::path folder = fs::path(parent) / name;
            if (::mkdir(folder.c_str(), 0755) != 0) {
                continue;
            }
            folder_ = folder;
            if (write_text(folder / limit, std::to_string(kLimitBytes))) {
                write_text(folder / "memory.swap.max", "0");
                write_text(folder / "memory.swappiness", "0");
                usable_ = true;
                return;
            }
            ::rmdir(folder.c_str());
        }
    }
    ~SmallCgroup() {
        if (usable_) {
            wait_until([&] { return ::rmdir(folder_.c_str()) == 0 || errno != EBUSY; });
        }
    }
    SmallCgroup(const SmallCgroup&) = delete;
    SmallCgroup& operator=(const SmallCgroup&) = delete;

    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] bool enter() const {
        return write_text(folder_ / "cgroup.procs", std::to_string(::getpid()));
    }

   private:
    fs::path folder_;
    bool usable_ = false;
};

/// Touches more memory than the cgroup has; the first choice of the killer.
[[noreturn]] void exceed() {
    write_text("/proc/self/oom_score_adj", "1000");
    void* const memory =
        ::mmap(nullptr, kHungerBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (std::size_t at = 0; memory != MAP_FAILED && at < kHungerBytes; at += 4096) {
        static_cast<volatile char*>(memory)[at] = 1;
    }
    ::_exit(3);
}

/// As an agent in the cgroup: starts a worker that exceeds, and writes what there is to say about
/// it.
/// `without_log`: a root that has no /dev.
[[noreturn]] void be_agent(const SmallCgroup& cgroup, const fs::path& without_log, int report_fd) {
    ::alarm(kLifeSeconds);
    if (!cgroup.enter()) {
        ::_exit(2);
    }
    OomWatch watch;
    OomWatch counter(without_log);
    const std::string before = watch.evidence(::getpid()) + counter.evidence(::getpid());
    const pid_t worker = ::fork();
    if (worker == 0) {
        ::alarm(kLifeSeconds);
        exceed();
    }
    int status = 0;
    ::waitpid(worker, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        ::_exit(3);
    }
    const std::string report = "before: " + before + "\nafter: " + watch.evidence(worker) +
                               "\ncounter: " + counter.evidence(worker);
    const auto written = ::write(report_fd, report.data(), report.size());
    ::_exit(written == static_cast<ssize_t>(report.size()) ? 0 : 4);
}

TEST(OomTest, VictimOfTheOomKillerIsFound) {
    const SmallCgroup cgroup;
    if (!cgroup.usable()) {
        GTEST_SKIP() << "this machine permits no cgroup with a limit of memory";
    }
    const TemporaryFolder root;
    fs::create_symlink("/proc", root.path() / "proc");
    fs::create_symlink("/sys", root.path() / "sys");
    auto [read_end, write_end] = make_pipe();
    const pid_t agent = ::fork();
    if (agent == 0) {
        be_agent(cgroup, root.path(), write_end.get());
    }
    write_end.reset();
    const std::string report = read_all(read_end.get());
    int status = 0;
    ASSERT_EQ(::waitpid(agent, &status, 0), agent);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3) {
        GTEST_SKIP() << "this machine does not enforce the limit of a new cgroup";
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    const std::string counted = "the kernel's out-of-memory killer ended 1 process of this cgroup";
    EXPECT_THAT(report, HasSubstr("before: \n"));
    EXPECT_THAT(report, AnyOf(HasSubstr("\nafter: " + counted),
                              HasSubstr("emory cgroup out of memory: Killed process ")));
    EXPECT_THAT(report, HasSubstr("\ncounter: " + counted));
    std::cout << report << "\n";
}

}  // namespace
}  // namespace regroup::agent
