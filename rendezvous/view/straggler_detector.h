// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/telemetry.h"

namespace regroup::rendezvous {

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
    [[nodiscard]] std::vector<SlowRank> observe(std::span<const Duration> work);

    /// The ranks that were returned and have had slow windows since, slowest first. `excess` is of
    /// the last windows.
    [[nodiscard]] std::vector<SlowRank> slow_ranks() const;

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
    /// The part of windows in which a rank is slow by chance, as the other ranks show it.
    class Usual {
       public:
        explicit Usual(const StragglerDetector& detector);
        /// `own`: in so many of the last kWindows the rank itself was slow.
        [[nodiscard]] double part_without(std::uint32_t own) const;

       private:
        std::uint64_t windows_;
        std::vector<std::uint32_t> counts_;  ///< Of slow windows, of all ranks; sorted.
        std::vector<std::uint64_t> sums_;    ///< Of the first counts.
    };
    [[nodiscard]] std::optional<SlowRank> judge(std::uint32_t rank,
                                                std::optional<Usual>& usual) const;

    double excess_;
    std::vector<Record> records_;  // by rank
    std::uint64_t windows_ = 0;
};

}  // namespace regroup::rendezvous
