// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regroup {

/// SplitMix64: a small seeded generator whose numbers are the same on every platform, which the
/// standard library's distributions are not. For jitter and simulation; not for secrets.
class Random {
   public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

    std::uint64_t next() noexcept {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31U);
    }

    /// Uniform in [0, bound). Requires bound > 0. The bias is below bound / 2^64.
    std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }

    /// Uniform in [0, 1).
    double unit() noexcept { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

    /// True with probability `p`.
    bool chance(double p) noexcept { return unit() < p; }

   private:
    std::uint64_t state_;
};

}  // namespace regroup
