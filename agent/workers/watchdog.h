// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/readable_watch.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// PyTorch's file timer. A worker writes a deadline for a section of its code to a FIFO. If the
/// worker is late, the watchdog sends it a signal.
///
///     {"version": 1, "pid": 4711, "scope_id": "load", "expiration_time": 1700000000.5, "signal":
///     9}
///
/// There is one such line for each entry into a section, with wall-clock time in seconds. A
/// negative time means that the worker has left the section. Only descendants of this process are
/// signalled. Invalid lines are ignored.
class Watchdog {
   public:
    /// Called with a message before a process is signalled.
    using OnLate = std::function<void(const std::string& line)>;

    Watchdog(boost::asio::io_context& io, OnLate on_late);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    /// Removes the FIFO.
    ~Watchdog();

    /// Makes the FIFO at `path`, replacing an old FIFO, and listens. Errors: system.
    Result<void> open(const std::string& path);

   private:
    struct Limit {
        double expires = 0;  ///< Seconds of the epoch.
        int signal = 0;
    };

    void read();
    void take(std::string_view line);
    void arm();
    void check();
    void end(pid_t pid, const std::string& scope, int signal);

    boost::asio::io_context& io_;
    OnLate on_late_;
    std::string path_;
    std::optional<ReadableWatch> fifo_;
    UniqueFd own_end_;  ///< Keeps the FIFO open for writing, so that it never reports its end.
    std::string partial_;
    boost::asio::steady_timer timer_;
    std::map<std::pair<pid_t, std::string>, Limit> limits_;
};

}  // namespace regroup::agent
