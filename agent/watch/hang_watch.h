// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/watch/collective_watch.h"
#include "agent/watch/progress_watch.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// ProgressWatch and CollectiveWatch with a timer: checks the workers of a running round twice a
/// second.
class HangWatch {
   public:
    struct Handlers {
        /// The workers that have a page.
        std::function<std::vector<WorkerLook>()> looks;
        /// The groups of all workers.
        std::function<std::vector<WorkerGroups>(Instant now)> groups;
        /// Bytes that each worker has written so far, by local rank. Nothing if the output does not
        /// pass through the agent.
        std::function<std::optional<std::vector<std::uint64_t>>()> output;
        /// The ranks of the node that have ended with success in this round.
        std::function<rendezvous::RankSet()> finished;
        /// A hang has begun, has changed, or is over.
        std::function<void(const std::optional<rendezvous::Hang>&)> on_change;
        /// Workers of a stopping round are in user code, and may stay there for `left` more.
        std::function<void(Duration left)> on_work;
        /// True if a signal or a debugger has stopped the process.
        std::function<bool(std::int64_t pid)> is_stopped;
    };

    HangWatch(boost::asio::io_context& io, const Clock& clock, HangLimits limits,
              Handlers handlers);

    /// A round has begun. This node has `workers` workers, from `first_rank` on.
    void begin(std::uint32_t first_rank, std::size_t workers);
    /// The round is stopping. From now on, on_work is called instead of on_change. The time in user
    /// code is at most HangLimits::first from the first call. May be called again.
    void stop();
    /// Ends the watch: no handler is called any more.
    void end();
    /// See ProgressWatch::silence_of.
    [[nodiscard]] Duration silence_of(std::uint32_t local_rank) const {
        return watch_.silence_of(local_rank);
    }

   private:
    void arm();
    void look();
    void look_for_work();

    const Clock& clock_;
    const HangLimits limits_;
    const Duration interval_;
    Handlers handlers_;
    ProgressWatch watch_;
    CollectiveWatch collectives_;
    boost::asio::steady_timer timer_;
    std::uint64_t round_ = 0;  ///< Counts rounds, to ignore an old timer.
    bool running_ = false;
    std::optional<Instant> stops_by_;  ///< The latest end of a stopping round.
    bool first_look_ = false;          ///< The next check is the first of a stopping round.
    std::uint32_t first_rank_ = 0;
    std::size_t workers_ = 0;
    std::optional<rendezvous::Hang> hang_;  ///< The last reported hang.
};

}  // namespace regroup::agent
