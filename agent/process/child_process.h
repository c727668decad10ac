// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sys/types.h>

#include "agent/process/asio_forward.h"
#include "agent/process/exit_status.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// A child of this process that leads a process group of its own. Made by LinuxLauncher.
///
/// The destructor reaps the child. Until then the kernel cannot reuse its pid or the number of its
/// group, so signals through this object never reach another process. Keep the object for as long
/// as the group may need a signal, and destroy it soon after the exit, or `ps` shows a defunct
/// process.
class ChildProcess {
   public:
    /// Takes over the child `pid` and its `pidfd`. `registry` holds the pid until this object reaps
    /// the child. Errors: system; the child was then killed.
    static Result<ChildProcess> adopt(boost::asio::io_context& io, pid_t pid, UniqueFd pidfd,
                                      std::shared_ptr<std::set<pid_t>> registry);

    ChildProcess(ChildProcess&&) noexcept;
    ChildProcess& operator=(ChildProcess&&) noexcept;
    /// Reaps the child. If it still runs, its group gets SIGKILL first.
    ~ChildProcess();

    [[nodiscard]] pid_t pid() const noexcept;

    /// Calls `on_exit` once from the event loop as soon as the child has ended, even if it has
    /// ended already. `on_exit` may destroy this object. Destroying this object drops `on_exit`. At
    /// most one wait at a time.
    void async_wait(std::function<void(ExitStatus)> on_exit);

    /// The exit status, or nothing while the child runs. Never blocks.
    [[nodiscard]] std::optional<ExitStatus> status();

    /// Signals the child alone. No error if it has ended.
    void signal(int number) noexcept;

    /// Signals all processes of the child's group, even after the child itself has ended. No error
    /// if the group is empty. A stopped process handles SIGTERM only after SIGCONT.
    void signal_group(int number) noexcept;

   private:
    struct State;
    explicit ChildProcess(std::unique_ptr<State> state);

    std::unique_ptr<State> state_;
};

}  // namespace regroup::agent
