// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Measures the time from a restart of workers until they show a first sign: output, a connection
/// to their agent, or one to the store of their round. Until then it looks 20 times a second. Tells
/// the first time that is long enough to matter, and nothing after that.
class StartWatch {
   public:
    struct Handlers {
        std::function<bool()> shows_sign;  ///< Without connections to the agent.
        /// `pid`: of one of the workers.
        std::function<void(Duration taken, pid_t pid)> on_slow;
    };

    /// All references outlive this object.
    StartWatch(boost::asio::io_context& io, const Clock& clock, Handlers handlers);

    /// A worker is started now.
    void started(std::uint32_t local_rank, pid_t pid);
    /// A worker has connected to the agent.
    void attached() { judge(true); }
    /// Looks at once, since a worker ends.
    void look() { judge(looks_ && handlers_.shows_sign()); }
    /// No time is told any more.
    void end() noexcept;

   private:
    void judge(bool shows_sign);
    void look_soon();

    const Clock& clock_;
    const Handlers handlers_;
    boost::asio::steady_timer timer_;
    std::set<std::uint32_t> known_;  ///< Local ranks that were started before.
    Instant started_at_{};
    pid_t pid_ = 0;
    bool looks_ = false;
    bool has_ended_ = false;
};

}  // namespace regroup::agent
