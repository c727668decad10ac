// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/process/asio_forward.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The signals that the agent gets, directly and through its warden.
///
/// systemd and Slurm signal every process of a job, so a signal may come both directly and through
/// the warden. It counts once: a second signal ends the grace period of the workers, and must come
/// from a second request. A signal that was ignored when the process started stays ignored.
class QuitSignals {
   public:
    struct Handlers {
        std::function<void(int number)> on_signal;
        std::function<void()> on_warden_gone;
    };

    /// Listens for `signals`. `warden_fd` is Warden::fd(), which the caller keeps, or -1 without a
    /// warden. Handlers must not destroy this object. Errors: system.
    static Result<QuitSignals> listen(boost::asio::io_context& io, int warden_fd,
                                      const std::vector<int>& signals, Handlers handlers);

    QuitSignals(QuitSignals&&) noexcept;
    QuitSignals& operator=(QuitSignals&&) noexcept;
    /// From then on the signals are ignored: the process is about to exit with its own code.
    ~QuitSignals();

   private:
    struct State;
    explicit QuitSignals(std::shared_ptr<State> state);
    static void wait(const std::shared_ptr<State>& state);

    std::shared_ptr<State> state_;
};

}  // namespace regroup::agent
