// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/spin.h"

namespace regroup::cpu {

/// The words of a barrier in shared memory. Zeroed memory is the initial state.
struct BarrierWords {
    alignas(64) std::atomic<std::uint32_t> arrivals;  ///< Of all ranks, in all passages.
    alignas(64) std::atomic<std::uint32_t> passages;  ///< Passages of all ranks.
    alignas(64) std::atomic<std::uint32_t> sleepers;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One rank's side of a barrier among processes. A waiting rank spins for a moment if
/// that has paid lately (SpinPolicy), and then sleeps in the kernel. No rank holds a
/// lock, so if a rank dies, the others only wait: see `stop`.
class NodeBarrier {
   public:
    enum class Outcome : std::uint8_t { passed, expired, stopped, hopeless };

    /// `hopeless` returns true, while this rank waits, if another rank will never arrive. `arrived`
    /// is the number of earlier arrivals of this rank, as counted in the words.
    NodeBarrier(BarrierWords& words, std::uint32_t world_size, bool crowded,
                std::function<bool()> hopeless, std::uint32_t arrived = 0);

    /// Returns when all ranks have arrived as often as this one; does not arrive if it is stopped.
    /// One thread at a time.
    [[nodiscard]] Outcome pass(Instant deadline);
    /// How often this rank has arrived.
    [[nodiscard]] std::uint32_t arrivals() const noexcept { return arrived_; }

    /// Releases the threads of this process that wait, now and in future. Any thread.
    void stop() noexcept;
    /// Wakes all ranks that sleep here, so that they check `hopeless`. Any thread.
    void stir() noexcept;
    [[nodiscard]] bool stopped() const noexcept { return stopped_; }

   private:
    [[nodiscard]] bool all_there() const noexcept;
    [[nodiscard]] bool spin() noexcept;

    BarrierWords& words_;
    const std::uint32_t world_size_;
    SpinPolicy spin_policy_;
    const std::function<bool()> hopeless_;
    std::uint32_t arrived_;  // Wraps around, as the shared words do.
    std::atomic<bool> stopped_ = false;
};

}  // namespace regroup::cpu
