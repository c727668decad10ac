// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/straggler_detector.h"

#include <algorithm>

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
    std::vector<Straggler> found;
    for (std::uint32_t rank = 0; work.size() > 1 && rank < work.size(); ++rank) {
        const Duration usual = median_of_others(work, rank);
        const auto median = static_cast<double>(usual.count());
        const auto own = static_cast<double>(work[rank].count());
        Record& record = records_[rank];
        if (work[rank] - usual < kExcessMin || own < median * (1 + excess_)) {
            record.slow_windows = 0;
            if (++record.well_windows >= kWindows) {
                record.told = false;
            }
            continue;
        }
        const double excess = own / std::max(median, 1.0) - 1;
        record.well_windows = 0;
        record.least_excess =
            record.slow_windows == 0 ? excess : std::min(record.least_excess, excess);
        if (++record.slow_windows >= kWindows && !record.told) {
            record.told = true;
            found.push_back({.rank = rank, .excess = record.least_excess});
        }
    }
    return found;
}

}  // namespace regroup::elastic
