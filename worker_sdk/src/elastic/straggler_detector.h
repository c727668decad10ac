// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::elastic {

/// A rank that is slower than the others in its own work.
struct Straggler {
    std::uint32_t rank = 0;
    double excess = 0;  ///< 0.2: takes 20 % longer than the median of the others.
};

/// Tells from the own work of all ranks, window by window, who is slow for good. One slow window is
/// no news, every rank has some; kSlowMin of the last kWindows are. Told the same, it says the
/// same, on every rank.
class StragglerDetector {
   public:
    /// `excess`: how much longer than the median of the others counts.
    StragglerDetector(std::uint32_t world_size, double excess);

    /// `work`: by rank, over the window that has just ended. Returns who is slow; each is told
    /// once, until it has been well for kWindows windows in a row.
    [[nodiscard]] std::vector<Straggler> observe(std::span<const Duration> work);

    static constexpr std::uint32_t kWindows = 4;
    static constexpr std::uint32_t kSlowMin = 3;

   private:
    struct Record {
        std::array<double, kWindows> excesses{};  // of the last windows; 0 where it was well
        bool told = false;
    };

    const double excess_;
    std::vector<Record> records_;  // by rank
    std::uint64_t windows_ = 0;
};

}  // namespace regroup::elastic
