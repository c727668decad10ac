// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/process/asio_forward.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Signals as the agent gets them: directly, and from its warden.
///
/// systemd and Slurm signal every process of a job, warden and agent alike, and then the same
/// signal comes on both ways. It counts once: the second request of a person, which shortens the
/// grace of the workers, must not come from a machine that asked only once. A signal that was
/// ignored when the process started stays ignored.
class QuitSignals {
   public:
    struct Handlers {
        std::function<void(int number)> on_signal;
        std::function<void()> on_warden_gone;
    };

    /// Listens from now on for `signals`. `warden_fd` is Warden::fd(), which stays the caller's, or
    /// -1 without a warden. Handlers may not destroy this object. Errors: system.
    static Result<QuitSignals> listen(boost::asio::io_context& io, int warden_fd,
                                      const std::vector<int>& signals, Handlers handlers);

    QuitSignals(QuitSignals&&) noexcept;
    QuitSignals& operator=(QuitSignals&&) noexcept;
    ~QuitSignals();

   private:
    struct State;
    explicit QuitSignals(std::shared_ptr<State> state);
    static void wait(const std::shared_ptr<State>& state);

    std::shared_ptr<State> state_;
};

}  // namespace regroup::agent
