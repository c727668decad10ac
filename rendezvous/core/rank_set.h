// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace regroup::rendezvous {

/// A set of ranks, as ranges in ascending order that do not touch each other.
class RankSet {
   public:
    /// The ranks [first, first + count).
    struct Range {
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        friend bool operator==(const Range&, const Range&) = default;
    };

    RankSet() = default;
    explicit RankSet(Range range) { add(range); }

    /// O(ranges).
    void add(Range range);
    void add(std::uint32_t rank) { add(Range{rank, 1}); }
    void add(const RankSet& other);
    /// Keeps the first `count` ranges.
    void shorten(std::size_t count);

    [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
    /// The number of ranks.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] bool contains(std::uint32_t rank) const noexcept;
    [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return ranges_; }

    friend bool operator==(const RankSet&, const RankSet&) = default;

   private:
    std::vector<Range> ranges_;
    std::uint64_t size_ = 0;
};

/// A set of ranks as a sentence tells it: how many there are, and the first ranges. Small,
/// whatever the set is.
class RankSummary {
   public:
    static constexpr std::size_t kRangesMax = 4;

    RankSummary() = default;
    explicit(false) RankSummary(const RankSet& ranks);
    /// Of the ranks below `world_size` that are not in the set.
    [[nodiscard]] static RankSummary of_others(const RankSet& ranks, std::uint32_t world_size);

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// The number of ranks.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// The first ones.
    [[nodiscard]] const std::vector<RankSet::Range>& ranges() const noexcept { return ranges_; }

    friend bool operator==(const RankSummary&, const RankSummary&) = default;

   private:
    std::vector<RankSet::Range> ranges_;
    std::uint64_t size_ = 0;
};

}  // namespace regroup::rendezvous
