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

/// PyTorch's file timer: workers write to a FIFO by when a section of theirs must be left, and who
/// is late is sent a signal.
///
///     {"version": 1, "pid": 4711, "scope_id": "load", "expiration_time": 1700000000.5, "signal":
///     9}
///
/// One such line for each entry into a section, wall-clock time in seconds; a negative time means
/// that it was left. Only descendants of this process are ever signalled; what is not understood is
/// passed over.
class Watchdog {
   public:
    /// Told before a process is signalled: a line for people.
    using OnLate = std::function<void(const std::string& line)>;

    Watchdog(boost::asio::io_context& io, OnLate on_late);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    /// Removes the FIFO.
    ~Watchdog();

    /// Makes the FIFO at `path`, in place of one that is there, and listens. Errors: system.
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
    UniqueFd own_end_;  ///< For writing, so that the FIFO has no end when the last worker leaves.
    std::string partial_;
    boost::asio::steady_timer timer_;
    std::map<std::pair<pid_t, std::string>, Limit> limits_;
};

}  // namespace regroup::agent
