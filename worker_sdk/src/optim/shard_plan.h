// SPDX-License-Identifier: Apache-2.0
// Which rank holds which elements of an optimizer's state, and how they travel when that changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace regroup::optim {

/// Shards begin at multiples of so many elements of a tensor: the chunks of clip_grad_norm.
inline constexpr std::size_t kShardChunk = 4096;

/// Elements [first, last).
struct Range {
    std::size_t first = 0;
    std::size_t last = 0;

    [[nodiscard]] std::size_t count() const noexcept { return last - first; }
    [[nodiscard]] bool contains(std::size_t element) const noexcept {
        return first <= element && element < last;
    }
    friend bool operator==(const Range&, const Range&) = default;
};

/// The elements of all tensors in one numbering. Each tensor is padded as its moments are in a
/// FusedOptimizer, so that the moments of a shard are a range of those of the whole.
class FlatLayout {
   public:
    /// By tensor.
    explicit FlatLayout(std::span<const std::size_t> counts);

    [[nodiscard]] std::size_t total() const noexcept { return firsts_.back(); }
    /// The number of the first element of a tensor.
    [[nodiscard]] std::size_t first(std::size_t tensor) const { return firsts_[tensor]; }
    [[nodiscard]] std::size_t count(std::size_t tensor) const { return counts_[tensor]; }
    /// The elements of a tensor that are in `range`, counted within the tensor.
    [[nodiscard]] Range part(std::size_t tensor, const Range& range) const;
    /// Equal shards, up to a chunk; they cover everything, in order.
    [[nodiscard]] std::vector<Range> shards(std::size_t count) const;

   private:
    [[nodiscard]] std::size_t nearest_boundary(std::size_t element) const;

    std::vector<std::size_t> counts_;
    std::vector<std::size_t> firsts_;  // and the total
};

struct Transfer {
    std::uint32_t from = 0;
    std::uint32_t to = 0;  ///< May be `from`: a copy.
    Range range{};

    friend bool operator==(const Transfer&, const Transfer&) = default;
};

struct TransferPlan {
    std::vector<Transfer> transfers{};  ///< Sorted by `to`.
    std::optional<Range> lost{};        ///< Wanted, and held by no rank.
};

/// How each rank gets what it wants, from itself where it can, else from the lowest rank that has
/// it. `held` and `wanted`: by rank.
[[nodiscard]] TransferPlan plan_transfers(std::span<const std::vector<Range>> held,
                                          std::span<const std::vector<Range>> wanted);

}  // namespace regroup::optim
