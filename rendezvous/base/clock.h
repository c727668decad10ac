// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace regroup {

/// All time spans and instants of the project. "No limit" is `Duration::max()`, never 0.
using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// `now + span`, saturating at Instant::max(), so that "no limit" stays without limit.
[[nodiscard]] constexpr Instant after(Instant now, Duration span) noexcept {
    return span > Duration::zero() && now > Instant::max() - span ? Instant::max() : now + span;
}

[[nodiscard]] constexpr double to_seconds(Duration duration) noexcept {
    return std::chrono::duration<double>(duration).count();
}

/// For people: "250 ms", "3.4 s", "92 s", "no limit".
[[nodiscard]] std::string format_duration(Duration duration);

/// The source of time outside the cores. A core gets the time as an argument.
class Clock {
   public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual Instant now() const noexcept = 0;
};

/// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override;
};

/// Of the SteadyClock.
[[nodiscard]] inline Instant now() noexcept {
    return SteadyClock().now();
}

}  // namespace regroup
