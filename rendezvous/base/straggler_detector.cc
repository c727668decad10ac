// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup {
namespace {

/// A smaller difference in a window is ignored, however short the work.
constexpr Duration kExcessMin = std::chrono::milliseconds(1);
/// The largest probability that so many slow windows are chance.
constexpr double kChance = 1e-4;

/// The median without the rank itself: with it, the median of two would lie half-way to the slow
/// one.
Duration median_without(std::span<const Duration> sorted, Duration own) {
    const auto at = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) -
                                             sorted.begin());
    const auto other = [&](std::size_t i) { return sorted[i < at ? i : i + 1]; };
    const std::size_t others = sorted.size() - 1;
    return others % 2 == 1 ? other(others / 2) : (other(others / 2) + other(others / 2 - 1)) / 2;
}

/// Whether `slow` of `windows` are more than chance explains if each window is slow with
/// probability `usual`, by Chernoff's bound.
bool is_beyond_chance(double slow, double windows, double usual) {
    const double part = slow / windows;
    if (usual <= 0 || part <= usual) {
        return usual <= 0;
    }
    const double well = part < 1 ? (1 - part) * std::log((1 - part) / (1 - usual)) : 0;
    return windows * (part * std::log(part / usual) + well) >= -std::log(kChance);
}

}  // namespace

StragglerDetector::StragglerDetector(std::uint32_t world_size, double excess)
    : excess_(excess), records_(world_size) {}

std::vector<Straggler> StragglerDetector::observe(std::span<const Duration> work) {
    ENSURE(work.size() == records_.size());
    if (work.size() < 2) {
        return {};
    }
    std::vector<Duration> sorted(work.begin(), work.end());
    std::sort(sorted.begin(), sorted.end());
    const std::size_t slot = windows_++ % kWindows;
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
        const Duration usual = median_without(sorted, work[rank]);
        const double excess = static_cast<double>((work[rank] - usual).count()) /
                              static_cast<double>(std::max<Duration>(usual, kExcessMin).count());
        const bool slow = work[rank] - usual >= kExcessMin && excess >= excess_;
        records_[rank].excesses[slot] = slow ? excess : 0;
    }
    std::vector<Straggler> found;
    for (std::uint32_t rank = 0; rank < work.size(); ++rank) {
        Record& record = records_[rank];
        if (recent(rank, kWindowsMin).slow == 0) {
            record.told = false;
        } else if (const auto slow = judge(rank); slow && !std::exchange(record.told, true)) {
            found.push_back(*slow);
        }
    }
    return found;
}

StragglerDetector::Recent StragglerDetector::recent(std::uint32_t rank,
                                                    std::uint32_t windows) const {
    Recent recent;
    for (std::uint64_t ago = 1; ago <= std::min<std::uint64_t>(windows, windows_); ++ago) {
        const double excess = records_[rank].excesses[(windows_ - ago) % kWindows];
        recent.slow += excess > 0 ? 1 : 0;
        recent.total_excess += excess;
    }
    return recent;
}

std::vector<Straggler> StragglerDetector::slow_ranks() const {
    std::vector<Straggler> slow;
    for (std::uint32_t rank = 0; rank < records_.size(); ++rank) {
        if (records_[rank].told) {
            slow.push_back({rank, recent(rank, kWindowsMin).excess(), kWindowsMin});
        }
    }
    std::ranges::sort(slow, std::ranges::greater(), &Straggler::excess);
    return slow;
}

// Leaves out the slowest quarter, since other stragglers are not noise.
double StragglerDetector::usual_part(std::uint32_t but_rank) const {
    std::vector<std::uint32_t> counts;
    for (std::uint32_t rank = 0; rank < records_.size(); ++rank) {
        if (rank != but_rank) {
            counts.push_back(recent(rank, kWindows).slow);
        }
    }
    std::sort(counts.begin(), counts.end());
    counts.resize(counts.size() - counts.size() / 4);
    const auto windows = static_cast<double>(std::min<std::uint64_t>(windows_, kWindows));
    return std::accumulate(counts.begin(), counts.end(), 0.0) /
           (windows * static_cast<double>(counts.size()));
}

std::optional<Straggler> StragglerDetector::judge(std::uint32_t rank) const {
    std::optional<double> usual;
    for (std::uint32_t windows = kWindowsMin; windows <= kWindows; windows *= 2) {
        const Recent found = recent(rank, windows);
        if (found.slow < kSlowPart * windows) {
            continue;
        }
        usual = usual ? usual : usual_part(rank);
        if (is_beyond_chance(found.slow, windows, *usual)) {
            return Straggler{.rank = rank, .excess = found.excess(), .windows = windows};
        }
    }
    return std::nullopt;
}

}  // namespace regroup
