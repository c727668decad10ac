// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/process/exit_status.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Everything needed to start one child. No shell is involved.
struct ProcessSpec {
    std::string executable;                ///< Absolute; see resolve_program.
    std::vector<std::string> arguments;    ///< argv, argv[0] included.
    std::vector<std::string> environment;  ///< "NAME=value"; all of it, not a delta on ours.
    int stdout_fd = -1;                    ///< Becomes the child's 1; -1 leaves ours.
    int stderr_fd = -1;                    ///< Likewise 2.
};

/// A running child, which leads a session and process group of its own, is killed when the thread
/// that started it ends, and is reaped exactly once.
///
/// Destroying it neither kills nor waits: the owner asks first, and process_tree.h cleans up. Used
/// from the io_context's one thread.
class ChildProcess {
   public:
    ChildProcess(boost::asio::io_context& io, pid_t pid, int pid_fd);
    ~ChildProcess();
    ChildProcess(ChildProcess&&) noexcept;
    ChildProcess& operator=(ChildProcess&&) noexcept;

    [[nodiscard]] pid_t pid() const noexcept;

    /// Calls `on_exit` once, when the child itself has ended and been reaped; its descendants may
    /// live on. Not called after the ChildProcess is destroyed.
    void wait(std::function<void(ExitStatus)> on_exit);

    /// Signals the child's whole group. While the child is unreaped its pid, which names the group,
    /// cannot be taken by another process; after that this does nothing.
    void signal_group(int signal) const noexcept;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

/// Starts a child at a cost that depends neither on this process's memory nor on its descriptors or
/// threads. The child gets descriptors 0, 1 and 2 and no other, default handlers for every signal
/// that this process handles, an empty signal mask, and SIGKILL should this thread end.
/// Errors: system, naming the program, the step and the reason. No child, not even a zombie, is left.
Result<ChildProcess> launch(boost::asio::io_context& io, const ProcessSpec& spec);

}  // namespace regroup::agent
