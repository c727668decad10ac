// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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
/// no news: every rank has some. Of what is told it makes the same of on every rank.
class StragglerDetector {
   public:
    /// `excess`: how much longer than the median of the others counts.
    StragglerDetector(std::uint32_t world_size, double excess);

    /// `work`: by rank, over the window that has just ended. Those who have been slow for
    /// kWindows windows in a row; each is told once, until it has been well for as many.
    [[nodiscard]] std::vector<Straggler> observe(std::span<const Duration> work);

    static constexpr std::uint32_t kWindows = 4;

   private:
    struct Record {
        std::uint32_t slow_windows = 0;  // in a row
        std::uint32_t well_windows = 0;  // in a row
        double least_excess = 0;         // of the slow ones
        bool told = false;
    };

    const double excess_;
    std::vector<Record> records_;  // by rank
};

}  // namespace regroup::elastic
