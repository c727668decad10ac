// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::elastic {

/// A rank that is slower than the others in its own work.
struct Straggler {
    std::uint32_t rank = 0;
    double excess = 0;          ///< 0.2: takes 20 % longer than the median of the others.
    std::uint32_t windows = 0;  ///< In most of so many.
};

/// Tells from the own work of all ranks, window by window, who is slow for good. One slow window is
/// no news, every rank has some: how many is what noise amounts to, and is learned from the others.
/// Where they have none, kSlowPart of the last kWindowsMin are enough; where the machine is busy or
/// steps are short, and any rank is slow now and then, it takes as many windows, up to kWindows, as
/// chance would hardly ever fill so. Told the same, it says the same, on every rank.
class StragglerDetector {
   public:
    /// `excess`: how much longer than the median of the others counts.
    StragglerDetector(std::uint32_t world_size, double excess);

    /// `work`: by rank, over the window that has just ended. Returns who is slow; each is told
    /// once, until it has been well for kWindowsMin windows in a row.
    [[nodiscard]] std::vector<Straggler> observe(std::span<const Duration> work);

    static constexpr std::uint32_t kWindowsMin = 4;
    static constexpr std::uint32_t kWindows = 32;
    static constexpr double kSlowPart = 0.75;

   private:
    struct Record {
        std::array<double, kWindows> excesses{};  // of the last windows; 0 where it was well
        bool told = false;
    };

    /// Windows in which the rank was slow, of the last so many.
    [[nodiscard]] std::uint32_t slow_windows(const Record& record, std::uint32_t windows) const;
    /// What part of its windows another rank is slow in.
    [[nodiscard]] double usual_part(std::uint32_t but_rank) const;
    [[nodiscard]] std::optional<Straggler> judge(std::uint32_t rank) const;

    const double excess_;
    std::vector<Record> records_;  // by rank
    std::uint64_t windows_ = 0;
};

}  // namespace regroup::elastic
