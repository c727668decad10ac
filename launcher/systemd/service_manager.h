// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// Tells systemd, or another service manager that has started this process, that it is ready, how
/// it is, and that it ends: the protocol of sd_notify(3). Where NOTIFY_SOCKET is not set, the calls
/// do nothing. All calls from one thread.
class ServiceManager {
   public:
    /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment:
    /// programs that this process starts must not speak for it. Call it before this process has a
    /// thread, and before it forks: WATCHDOG_PID names the process that systemd has started.
    ServiceManager();
    ~ServiceManager();
    ServiceManager(ServiceManager&& other) noexcept;
    ServiceManager& operator=(ServiceManager&& other) noexcept;

    /// Says that this process is ready. From now on the event loop of `io` itself answers the
    /// watchdog, at half of its time or more often, and tells the `status`, one line, within 2 s of
    /// a change. `io` outlives this object. Call it once.
    ///
    /// Errors: invalid_argument for a NOTIFY_SOCKET that is no address of a Unix socket; system if
    /// nobody reads there, or for 1 s. The process may go on: systemd then ends it when its time to
    /// start is over.
    [[nodiscard]] Result<void> ready(boost::asio::io_context& io,
                                     std::function<std::string()> status);
    /// Says that this process ends, and why. The watchdog is answered until the event loop ends.
    void stopping(const std::string& why);

   private:
    struct Watch;

    std::string address_;                   ///< Empty: there is no service manager.
    std::chrono::microseconds watchdog_{};  ///< Zero: there is no watchdog.
    std::shared_ptr<Watch> watch_;          ///< Null before `ready`.
};

}  // namespace regroup::launcher
