// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/process/child_process.h"

namespace regroup::agent {

/// What to start, and with what. Standard input is inherited.
struct ProcessSpec {
    std::string executable;                ///< Absolute; see resolve_program().
    std::vector<std::string> arguments;    ///< argv, the program's name first.
    std::vector<std::string> environment;  ///< All of it, "NAME=value" each; not a delta on ours.
    std::string working_directory;         ///< Empty: ours.
    int stdout_fd = -1;                    ///< Above 2; -1: ours. The caller closes its copy.
    int stderr_fd = -1;
    /// The CPUs that it may run on, those of them that our cpuset permits; empty: ours. Each from 0
    /// to kCpusMax - 1.
    std::vector<int> cpus;
    /// The NUMA nodes from which its memory is taken while they have some; empty: our policy. A
    /// preference: a kernel or a sandbox without such policies is no failure, nor is a node without
    /// memory that we may use. Each from 0 to kNumaNodesMax - 1.
    std::vector<int> memory_nodes;

    static constexpr int kCpusMax = 1 << 16;
    static constexpr int kNumaNodesMax = 1 << 10;  ///< The kernel's own limit.
};

/// Starts programs at a constant cost, however large or threaded this process is, and never runs a
/// line of our own code twice: the child borrows our memory until it executes the program.
///
/// A started child leads a session and a process group of its own, has no descriptors but 0, 1 and
/// 2, no blocked signal, no signal handler, what was ignored still ignored (except SIGPIPE and
/// SIGTTOU, which the agent ignores for itself), and gets SIGKILL when the *thread* that started it
/// ends. So construct and use a launcher on one thread, which lives as long as the agent.
///
/// Needs Linux 5.4 (waitid on a pidfd).
class LinuxLauncher {
   public:
    /// Sets SIGCHLD to its default: ignoring it, as some parents do, loses exit statuses.
    explicit LinuxLauncher(boost::asio::io_context& io);

    LinuxLauncher(const LinuxLauncher&) = delete;
    LinuxLauncher& operator=(const LinuxLauncher&) = delete;

    /// Returns once the program runs. Errors: system, with the program, the failing step and the
    /// kernel's reason; no child, not even a zombie, is left behind.
    Result<ChildProcess> launch(const ProcessSpec& spec);

    /// The pids that living ChildProcess objects will reap; nobody else may.
    [[nodiscard]] const std::set<pid_t>& children() const noexcept { return *children_; }

   private:
    boost::asio::io_context& io_;
    std::unique_ptr<std::byte[]> stack_;  ///< The child's, until it executes the program.
    std::shared_ptr<std::set<pid_t>> children_;
};

}  // namespace regroup::agent
