// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/process/child_process.h"

namespace regroup::agent {

/// A program to start, and its environment.
struct ProcessSpec {
    std::string executable;                ///< Absolute path; see resolve_program().
    std::vector<std::string> arguments;    ///< argv, the program's name first.
    std::vector<std::string> environment;  ///< The complete environment, "NAME=value" each.
    std::string working_directory;         ///< Empty: ours.
    int stdin_fd = -1;                     ///< Above 2; -1: ours. The caller closes its copy.
    int stdout_fd = -1;
    int stderr_fd = -1;
    /// The CPUs on which it may run, limited by our cpuset. Empty: ours. Each from 0 to kCpusMax
    /// - 1.
    std::vector<int> cpus;
    /// The preferred NUMA nodes of its memory. Empty: our policy. No error if the kernel or a
    /// sandbox has no such policies, or if a node has no memory that we may use. Each from 0 to
    /// kNumaNodesMax - 1.
    std::vector<int> memory_nodes;

    static constexpr int kCpusMax = 1 << 16;
    static constexpr int kNumaNodesMax = 1 << 10;  ///< The kernel's own limit.
};

/// The variables of this process, "NAME=value" each.
[[nodiscard]] std::vector<std::string> own_environment();

/// Starts programs at a constant cost, whatever the size and the threads of this process: the child
/// shares our memory until it executes the program.
///
/// A started child leads a new session and a new process group. It has only the descriptors 0, 1
/// and 2, no blocked signals and no handlers. Ignored signals stay ignored, except those that the
/// agent ignores for itself: SIGPIPE, SIGTTOU, and the ones of outlive_limits(). The child gets
/// SIGKILL when the *thread* that started it ends, so use a launcher on one thread, which lives as
/// long as the agent.
///
/// Needs Linux 5.3 (a pidfd that can be polled).
class LinuxLauncher {
   public:
    /// Sets SIGCHLD to its default: with an inherited SIG_IGN, exit statuses would be lost.
    explicit LinuxLauncher(boost::asio::io_context& io);

    LinuxLauncher(const LinuxLauncher&) = delete;
    LinuxLauncher& operator=(const LinuxLauncher&) = delete;

    /// Returns once the program runs. Errors: overloaded (the same may succeed later) or system,
    /// with the program, the failing step and the reason of the kernel. After an error no child or
    /// zombie is left.
    Result<ChildProcess> launch(const ProcessSpec& spec);

    /// Takes over a process that another process has made our child. Errors: system; the child was
    /// then killed.
    Result<ChildProcess> adopt(pid_t pid, UniqueFd pidfd);
    /// A process that adopt() will get is among children() from now on; or it is not to come.
    void expect(pid_t pid) { children_->insert(pid); }
    void expect_no_more(pid_t pid) { children_->erase(pid); }

    /// The pids that ChildProcess objects will reap. No other code may reap them.
    [[nodiscard]] const std::set<pid_t>& children() const noexcept { return *children_; }

   private:
    boost::asio::io_context& io_;
    std::unique_ptr<std::byte[]> stack_;  ///< The child's, until it executes the program.
    std::shared_ptr<std::set<pid_t>> children_;
};

}  // namespace regroup::agent
