// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/shard_plan.h"

#include "worker_sdk/src/optim/flat_tensors.h"

namespace regroup::optim {
namespace {

/// The range in `held` that goes on longest from `element`; nullptr if none contains it.
const Range* find_holder(const std::vector<Range>& held, std::size_t element) {
    const Range* best = nullptr;
    for (const Range& range : held) {
        if (range.contains(element) && (best == nullptr || range.last > best->last)) {
            best = &range;
        }
    }
    return best;
}

}  // namespace

FlatLayout::FlatLayout(std::span<const std::size_t> counts)
    : counts_(counts.begin(), counts.end()), firsts_{0} {
    for (const std::size_t count : counts_) {
        firsts_.push_back(firsts_.back() + padded_count(count));
    }
}

Range FlatLayout::part(std::size_t tensor, const Range& range) const {
    const std::size_t first = firsts_[tensor];
    const std::size_t last = first + counts_[tensor];
    const std::size_t from = std::clamp(range.first, first, last);
    const std::size_t to = std::clamp(range.last, first, last);
    return {from - first, std::max(from, to) - first};
}

std::size_t FlatLayout::nearest_boundary(std::size_t element) const {
    const auto next = std::ranges::upper_bound(firsts_, element);
    if (next == firsts_.end()) {
        return total();
    }
    const std::size_t first = *(next - 1);
    const std::size_t before = first + (element - first) / kShardChunk * kShardChunk;
    const std::size_t after = std::min(before + kShardChunk, *next);
    return element - before <= after - element ? before : after;
}

std::vector<Range> FlatLayout::shards(std::size_t count) const {
    std::vector<Range> shards(count);
    std::size_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t share = total() / count * (i + 1) + total() % count * (i + 1) / count;
        shards[i] = {first, i + 1 == count ? total() : nearest_boundary(share)};
        first = shards[i].last;
    }
    return shards;
}

TransferPlan plan_transfers(std::span<const std::vector<Range>> held,
                            std::span<const std::vector<Range>> wanted) {
    TransferPlan plan;
    for (std::uint32_t to = 0; to < wanted.size(); ++to) {
        for (const Range& range : wanted[to]) {
            for (std::size_t at = range.first; at < range.last;) {
                std::uint32_t from = to;
                const Range* source = find_holder(held[to], at);
                for (std::uint32_t rank = 0; rank < held.size() && source == nullptr; ++rank) {
                    from = rank;
                    source = find_holder(held[rank], at);
                }
                if (source == nullptr) {
                    plan.lost = Range{at, range.last};
                    return plan;
                }
                const std::size_t end = std::min(source->last, range.last);
                plan.transfers.push_back({.from = from, .to = to, .range = {at, end}});
                at = end;
            }
        }
    }
    return plan;
}

}  // namespace regroup::optim
