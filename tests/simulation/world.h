// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "tests/simulation/checker.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/network.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/trace.h"

namespace regroup::simulation {

/// The name of the nodes of a host.
[[nodiscard]] inline std::string host_name(std::uint32_t host) {
    return {static_cast<char>('a' + host)};
}

inline constexpr Instant kStart = Instant{} + std::chrono::hours(1);

/// State that all parts of a run share: time, events, network, trace, checkers. One owner, no
/// threads.
struct World {
    World(std::uint64_t seed, std::size_t trace_lines)
        : plan(Plan::from_seed(seed)),
          random(seed ^ 0x5bf03635d1a5f3c7ULL),
          second_random(seed ^ 0xe7037ed1a0b428dbULL),
          network(queue, Random(seed ^ 0x9ddfea08eb382d69ULL), plan),
          trace(trace_lines) {}

    Plan plan;
    JobPlan job;
    Random random;
    Random second_random;  ///< See JobPlan::draw.
    EventQueue queue;
    Network network;
    Trace trace;
    Checkers checkers;
    /// For tests of the checkers: the daemon drops messages for which it is true.
    std::function<bool(const rendezvous::FromDaemon&)> swallow;
    Instant now = kStart;
    std::uint64_t steps = 0;      ///< Of all cores, agents' and daemons'.
    std::uint16_t next_port = 0;  ///< The last one that an agent was given for a store.

    /// Adds a line to the trace. `make` is called only if the text is kept.
    template <class Make>
    void note(Make make) {
        if (trace.keeps_text()) {
            trace.add(now - kStart, make());
        }
    }
    /// Tells every checker.
    template <class Tell>
    void tell(Tell tell_one) {
        for (const auto& checker : checkers) {
            tell_one(*checker);
        }
    }
};

/// Since when a process runs, and until when it is paused.
struct Uptime {
    Instant began = Instant::max();
    Instant paused_until{};

    void restart(Instant now) { began = paused_until = now; }
    void pause(Instant until) { paused_until = std::max(paused_until, until); }
    [[nodiscard]] bool is_paused(Instant now) const noexcept { return paused_until > now; }
    /// Instant::max() while it is paused.
    [[nodiscard]] Instant awake_since(Instant now) const noexcept {
        return is_paused(now) ? Instant::max() : std::max(began, paused_until);
    }
};

/// A clock that runs a little too fast or too slow.
class DriftingClock {
   public:
    DriftingClock() = default;
    explicit DriftingClock(std::int64_t ppm) : ppm_(ppm) {}

    [[nodiscard]] Instant local(Instant world) const {
        const Duration passed = world - kStart;
        return world + Duration(static_cast<std::int64_t>(static_cast<double>(passed.count()) *
                                                          static_cast<double>(ppm_) * 1e-6));
    }
    /// The first instant of the world at which the clock shows `local` or more.
    [[nodiscard]] Instant world(Instant local) const {
        if (local == Instant::max()) {
            return local;
        }
        const double rate = 1.0 + static_cast<double>(ppm_) * 1e-6;
        const auto passed = static_cast<double>((local - kStart).count()) / rate;
        return kStart + Duration(static_cast<std::int64_t>(passed)) + std::chrono::microseconds(2);
    }

   private:
    std::int64_t ppm_ = 0;
};

}  // namespace regroup::simulation
