// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <sched.h>

#include "rendezvous/base/clock.h"

namespace regroup {

/// Tells the processor that this thread spins.
inline void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Decides whether a thread spins before it sleeps. Spinning saves a wake-up if the event comes
/// soon. If events come late, for instance because other programs use the processors, spinning only
/// takes time from the thread that is waited for; then most waits sleep at once. If there are fewer
/// processors than ranks, a spinning thread gives up its processor at each look, which takes less
/// time than to fall asleep and to be woken. One thread at a time.
class SpinPolicy {
   public:
    /// Longer than waking a sleeper takes, on virtual machines too: with a shorter limit, two ranks
    /// that sleep in turn would always have to wake each other.
    static constexpr Duration kLimit = std::chrono::microseconds(200);
    /// Looks between two reads of the clock.
    static constexpr unsigned kLooksPerTime = 16;

    /// `crowded`: there are fewer processors than ranks.
    explicit SpinPolicy(bool crowded) noexcept : crowded_(crowded) {}

    /// Whether to spin in this wait. If so, report how it ended.
    [[nodiscard]] bool is_worth_it() noexcept {
        if (skip_ == 0) {
            return true;
        }
        --skip_;
        return false;
    }
    /// Between two looks.
    void pause() const noexcept {
        if (crowded_) {
            ::sched_yield();
        } else {
            relax();
        }
    }
    /// `waited` is the time that the event took to come, or for which this thread has spun in vain.
    /// It may be much longer than the limit if another program got the processor.
    void report(Duration waited) noexcept {
        const bool paid = waited < kLimit;
        failures_ = paid ? std::max(failures_ - 1, 0) : std::min(failures_ + 1, kFailuresMax);
        skip_ = paid || failures_ < kPatience ? 0 : 1 << (failures_ - kPatience);
    }

   private:
    /// Failures in a row, more or less, before waits are skipped: 1, then 2, then 4, ...
    static constexpr int kPatience = 4;
    static constexpr int kFailuresMax = kPatience + 6;

    /// Waits before the first spin. A group that has just formed waits for ranks that still start
    /// or recover, and need the processors.
    static constexpr int kFirstSkip = 32;

    bool crowded_;
    int failures_ = 0;
    int skip_ = kFirstSkip;
};

}  // namespace regroup
