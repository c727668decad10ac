// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace regroup {

/// The rows of a buffer: of equal lengths, or of the given ones.
class Rows {
   public:
    /// `counts` are empty for rows of `count` elements each.
    Rows(const void* data, std::size_t item_bytes, std::size_t count,
         std::span<const std::size_t> counts)
        : data_(static_cast<std::byte*>(const_cast<void*>(data))),
          item_(item_bytes),
          count_(count),
          counts_(counts) {}

    /// Elements of a row.
    [[nodiscard]] std::size_t count(std::uint32_t row) const noexcept {
        return counts_.empty() ? count_ : counts_[row];
    }
    /// Elements of the longest row.
    [[nodiscard]] std::size_t longest() const noexcept {
        return counts_.empty() ? count_ : *std::max_element(counts_.begin(), counts_.end());
    }
    /// Elements of the rows before a row.
    [[nodiscard]] std::size_t offset(std::uint32_t row) const noexcept {
        return counts_.empty()
                   ? row * count_
                   : std::accumulate(counts_.begin(), counts_.begin() + row, std::size_t{0});
    }
    [[nodiscard]] std::byte* data(std::uint32_t row) const noexcept {
        return data_ + offset(row) * item_;
    }
    [[nodiscard]] std::size_t bytes(std::uint32_t row) const noexcept { return count(row) * item_; }
    /// How many of `columns`, given as a part of the longest row, the row has.
    [[nodiscard]] std::size_t count_in(std::uint32_t row, std::size_t first,
                                       std::size_t columns) const noexcept {
        return std::min(columns, count(row) - std::min(count(row), first));
    }

   private:
    std::byte* data_;
    std::size_t item_;
    std::size_t count_;
    std::span<const std::size_t> counts_;
};

}  // namespace regroup
