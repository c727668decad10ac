// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rank_set.h"

#include <algorithm>

namespace regroup::rendezvous {

namespace {

std::uint64_t end_of(const RankSet::Range& range) noexcept {
    return std::uint64_t{range.first} + range.count;
}

}  // namespace

void RankSet::add(Range range) {
    if (range.count == 0) {
        return;
    }
    // All ranges that overlap the new one or touch it become one with it.
    const auto from = std::lower_bound(
        ranges_.begin(), ranges_.end(), std::uint64_t{range.first},
        [](const Range& known, std::uint64_t first) { return end_of(known) < first; });
    auto to = from;
    std::uint64_t first = range.first;
    std::uint64_t end = end_of(range);
    for (; to != ranges_.end() && to->first <= end; ++to) {
        first = std::min<std::uint64_t>(first, to->first);
        end = std::max(end, end_of(*to));
        size_ -= to->count;
    }
    const Range merged{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
    size_ += merged.count;
    ranges_.insert(ranges_.erase(from, to), merged);
}

void RankSet::add(const RankSet& other) {
    for (const Range& range : other.ranges_) {
        add(range);
    }
}

void RankSet::shorten(std::size_t count) {
    while (ranges_.size() > count) {
        size_ -= ranges_.back().count;
        ranges_.pop_back();
    }
}

bool RankSet::contains(std::uint32_t rank) const noexcept {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), rank,
        [](std::uint32_t value, const Range& range) { return value < range.first; });
    return after != ranges_.begin() && rank < end_of(*(after - 1));
}

RankSummary::RankSummary(const RankSet& ranks) : size_(ranks.size()) {
    const auto& all = ranks.ranges();
    const std::size_t count = std::min(all.size(), kRangesMax);
    ranges_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
}

RankSummary RankSummary::of_others(const RankSet& ranks, std::uint32_t world_size) {
    RankSummary result;
    result.size_ = world_size - std::min<std::uint64_t>(world_size, ranks.size());
    std::uint64_t next = 0;
    const auto fill = [&](std::uint64_t until) {
        if (until > next) {
            result.ranges_.push_back(
                {static_cast<std::uint32_t>(next), static_cast<std::uint32_t>(until - next)});
        }
    };
    for (const RankSet::Range& range : ranks.ranges()) {
        if (result.ranges_.size() == kRangesMax) {
            return result;
        }
        fill(std::min<std::uint64_t>(range.first, world_size));
        next = end_of(range);
    }
    if (result.ranges_.size() < kRangesMax) {
        fill(world_size);
    }
    return result;
}

}  // namespace regroup::rendezvous
