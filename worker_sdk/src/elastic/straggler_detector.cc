// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/straggler_detector.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::elastic {
namespace {

/// Less than that in a whole window is noise, however little the work.
constexpr Duration kExcessMin = std::chrono::milliseconds(1);

/// With the rank itself among them, the median of two would lie half-way to the slow one.
Duration median_of_others(std::span<const Duration> work, std::size_t rank) {
    std::vector<Duration> others;
    for (std::size_t other = 0; other < work.size(); ++other) {
        if (other != rank) {
            others.push_back(work[other]);
        }
    }
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    if (others.size() % 2 == 1) {
        return *middle;
    }
    return (*middle + *std::max_element(others.begin(), middle)) / 2;
}

}  // namespace

StragglerDetector::StragglerDetector(std::uint32_t world_size, double excess)
    : excess_(excess), records_(world_size) {}

std::vector<Straggler> StragglerDetector::observe(std::span<const Duration> work) {
    ENSURE(work.size() == records_.size());
    const std::size_t slot = windows_++ % kWindows;
    std::vector<Straggler> found;
    for (std::uint32_t rank = 0; work.size() > 1 && rank < work.size(); ++rank) {
        const Duration usual = median_of_others(work, rank);
        const double excess = static_cast<double>((work[rank] - usual).count()) /
                              static_cast<double>(std::max<Duration>(usual, kExcessMin).count());
        const bool slow = work[rank] - usual >= kExcessMin && excess >= excess_;
        Record& record = records_[rank];
        record.excesses[slot] = slow ? excess : 0;
        const auto slow_windows =
            kWindows - static_cast<std::size_t>(
                           std::count(record.excesses.begin(), record.excesses.end(), 0.0));
        if (slow_windows == 0) {
            record.told = false;
        } else if (slow_windows >= kSlowMin && !std::exchange(record.told, true)) {
            const double sum = std::accumulate(record.excesses.begin(), record.excesses.end(), 0.0);
            found.push_back({.rank = rank, .excess = sum / static_cast<double>(slow_windows)});
        }
    }
    return found;
}

}  // namespace regroup::elastic
