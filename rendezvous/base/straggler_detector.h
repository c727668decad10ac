// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup {

/// A rank that is slower than the others in its own work.
struct Straggler {
    std::uint32_t rank = 0;
    double excess = 0;          ///< 0.2: takes 20 % longer than the median of the others.
    std::uint32_t windows = 0;  ///< The rank was slow in most of so many windows.
};

/// Finds ranks that are permanently slow, from the work times of all ranks, window by window. Every
/// rank has some slow windows by chance; the detector learns their usual number from the other
/// ranks. If the others have none, kSlowPart of the last kWindowsMin windows are enough to name a
/// rank. On a busy machine or with short steps it needs more windows, up to kWindows, until chance
/// is no explanation. Equal input gives equal results on every rank.
class StragglerDetector {
   public:
    /// `excess`: how much longer than the median of the others counts.
    StragglerDetector(std::uint32_t world_size, double excess);

    /// `work`: by rank, over the window that has just ended. Returns slow ranks. A rank is returned
    /// once, and again only after kWindowsMin windows in a row without slowness.
    [[nodiscard]] std::vector<Straggler> observe(std::span<const Duration> work);

    /// The ranks that were returned and have had slow windows since, slowest first. `excess` is of
    /// the last windows.
    [[nodiscard]] std::vector<Straggler> slow_ranks() const;

    static constexpr std::uint32_t kWindowsMin = 4;
    static constexpr std::uint32_t kWindows = 32;
    static constexpr double kSlowPart = 0.75;

   private:
    struct Record {
        std::array<double, kWindows> excesses{};  // Of the last windows; 0 if it was not slow.
        bool told = false;
    };

    struct Recent {
        std::uint32_t slow = 0;  ///< Windows in which the rank was slow.
        double total_excess = 0;

        /// The average of these windows. Requires that there is one.
        [[nodiscard]] double excess() const noexcept { return total_excess / slow; }
    };

    /// The last so many windows of the rank.
    [[nodiscard]] Recent recent(std::uint32_t rank, std::uint32_t windows) const;
    /// The part of windows in which the other ranks are slow.
    [[nodiscard]] double usual_part(std::uint32_t but_rank) const;
    [[nodiscard]] std::optional<Straggler> judge(std::uint32_t rank) const;

    double excess_;
    std::vector<Record> records_;  // by rank
    std::uint64_t windows_ = 0;
};

}  // namespace regroup
