// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::rendezvous {
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

std::vector<SlowRank> StragglerDetector::observe(std::span<const Duration> work) {
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
    std::vector<SlowRank> found;
    std::optional<Usual> usual;  // Mostly nobody asks.
    for (std::uint32_t rank = 0; rank < work.size(); ++rank) {
        Record& record = records_[rank];
        if (recent(rank, kWindowsMin).slow == 0) {
            record.told = false;
        } else if (const auto slow = judge(rank, usual);
                   slow && !std::exchange(record.told, true)) {
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

std::vector<SlowRank> StragglerDetector::slow_ranks() const {
    std::vector<SlowRank> slow;
    for (std::uint32_t rank = 0; rank < records_.size(); ++rank) {
        if (records_[rank].told) {
            slow.push_back({rank, recent(rank, kWindowsMin).excess()});
        }
    }
    std::ranges::sort(slow, std::ranges::greater(), &SlowRank::excess);
    return slow;
}

StragglerDetector::Usual::Usual(const StragglerDetector& detector)
    : windows_(std::min<std::uint64_t>(detector.windows_, kWindows)) {
    for (std::uint32_t rank = 0; rank < detector.records_.size(); ++rank) {
        counts_.push_back(detector.recent(rank, kWindows).slow);
    }
    std::sort(counts_.begin(), counts_.end());
    sums_.push_back(0);
    for (const std::uint32_t count : counts_) {
        sums_.push_back(sums_.back() + count);
    }
}

// Leaves out the slowest quarter, since other stragglers are not noise.
double StragglerDetector::Usual::part_without(std::uint32_t own) const {
    const std::size_t others = counts_.size() - 1;
    const std::size_t counted = others - others / 4;
    // Among equals it does not matter which is its own.
    const auto at = static_cast<std::size_t>(std::lower_bound(counts_.begin(), counts_.end(), own) -
                                             counts_.begin());
    const std::uint64_t sum = at < counted ? sums_[counted + 1] - own : sums_[counted];
    return static_cast<double>(sum) / static_cast<double>(windows_ * counted);
}

std::optional<SlowRank> StragglerDetector::judge(std::uint32_t rank,
                                                 std::optional<Usual>& usual) const {
    for (std::uint32_t windows = kWindowsMin; windows <= kWindows; windows *= 2) {
        const Recent found = recent(rank, windows);
        if (found.slow < kSlowPart * windows) {
            continue;
        }
        if (!usual) {
            usual.emplace(*this);
        }
        const double part = usual->part_without(recent(rank, kWindows).slow);
        if (is_beyond_chance(found.slow, windows, part)) {
            return SlowRank{.rank = rank, .excess = found.excess()};
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
