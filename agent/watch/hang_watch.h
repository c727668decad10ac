// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/watch/progress_watch.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// ProgressWatch with a timer: looks at the workers of a running round a few times a second. Costs
/// nothing while there is nothing to look at.
class HangWatch {
   public:
    struct Handlers {
        /// The workers that have a page.
        std::function<std::vector<WorkerLook>()> looks;
        /// Bytes that each worker has written so far, by its local rank; nothing if they do not
        /// pass through here.
        std::function<std::optional<std::vector<std::uint64_t>>()> output;
        /// The hang has begun, is another's now, or is over.
        std::function<void(const std::optional<rendezvous::Hang>&)> on_change;
        /// Of a round that is being stopped: some are at work of their own, and for so long more
        /// they may be.
        std::function<void(Duration left)> on_work;
        /// Whether a signal or a debugger has stopped the process, which is no work.
        std::function<bool(std::int64_t pid)> is_stopped;
    };

    HangWatch(boost::asio::io_context& io, const Clock& clock, HangLimits limits,
              Handlers handlers);

    /// A round has begun, of which `workers` run here, from `first_rank` on.
    void begin(std::uint32_t first_rank, std::size_t workers);
    /// A worker has got a page.
    void attached();
    /// The round is being stopped: no hang is reported any more, but what its workers are still at.
    /// All of that may take them no longer than HangLimits::first, or what is left by now. May be
    /// called again.
    void stop();
    /// Nothing is reported after that.
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
    boost::asio::steady_timer timer_;
    std::uint64_t round_ = 0;  ///< Counts rounds, for a timer that has expired meanwhile.
    bool running_ = false;
    std::optional<Instant> stops_by_;  ///< Once the round is being stopped: the latest end of it.
    bool first_look_ = false;          ///< Since it is.
    bool armed_ = false;
    std::uint32_t first_rank_ = 0;
    std::size_t workers_ = 0;
    std::optional<rendezvous::Hang> hang_;  ///< As it was told last.
};

}  // namespace regroup::agent
