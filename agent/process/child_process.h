// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sys/types.h>

#include "agent/process/asio_forward.h"
#include "agent/process/exit_status.h"
#include "agent/process/unique_fd.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// A child of this process that leads a process group of its own. Made by LinuxLauncher.
///
/// Its exit is seen without reaping it; it is reaped when this object is destroyed. Until then its
/// pid, and so the number of its group, cannot be given to anybody else: signals sent through this
/// object never reach a stranger. So keep the object for as long as the group may need a signal,
/// and destroy it soon after the exit, or `ps` shows a defunct process.
class ChildProcess {
   public:
    /// Takes over the child `pid`, and `pidfd` that refers to it. `registry` holds its pid for as
    /// long as this object is the one to reap it. Errors: system; the child was then killed.
    static Result<ChildProcess> adopt(boost::asio::io_context& io, pid_t pid, UniqueFd pidfd,
                                      std::shared_ptr<std::set<pid_t>> registry);

    ChildProcess(ChildProcess&&) noexcept;
    ChildProcess& operator=(ChildProcess&&) noexcept;
    /// Reaps the child. If it still runs, its group gets SIGKILL first, and nobody waits for that.
    ~ChildProcess();

    [[nodiscard]] pid_t pid() const noexcept;

    /// Calls `on_exit` once from the event loop, as soon as the child has ended, also if it has
    /// ended already. `on_exit` may destroy this object; without it, destroying this object drops
    /// `on_exit`. At most one wait at a time.
    void async_wait(std::function<void(ExitStatus)> on_exit);

    /// How the child has ended, or nothing while it runs. Never blocks.
    [[nodiscard]] std::optional<ExitStatus> status();

    /// Signals the child alone. One that has ended is not an error.
    void signal(int number) noexcept;

    /// Signals the child and all that share its process group, also after the child itself has
    /// ended. A group without members is not an error. (A process that was stopped sees a SIGTERM
    /// only after a SIGCONT.)
    void signal_group(int number) noexcept;

   private:
    struct State;
    explicit ChildProcess(std::unique_ptr<State> state);

    std::unique_ptr<State> state_;
};

}  // namespace regroup::agent
