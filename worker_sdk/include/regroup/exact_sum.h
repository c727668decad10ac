// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup {

/// A sum of doubles without rounding errors: every value is added exactly to a fixed-point number
/// that covers the range of all doubles, and only the result is rounded, once. So the result is the
/// double nearest to the true sum, and does not depend on the order of the values or on their
/// distribution over ranks.
///
/// Costs 568 bytes, and a few additions of integers per value. A value; not thread-safe.
class ExactSum {
   public:
    void add(double value) noexcept;
    /// Adds all values of `other`.
    void add(const ExactSum& other) noexcept;

    /// The nearest double, ties to even: infinite if the sum exceeds all doubles or an infinity was
    /// added; NaN if a NaN was added, or infinities of both signs.
    [[nodiscard]] double value() const noexcept;

   private:
    friend void sum_over_ranks(ProcessGroup& group, std::span<ExactSum> sums);

    // 2^-1074, the smallest double, is bit 0. A double reaches up to bit 2097; 78 bits above hold
    // the carries of 2^63 of the largest.
    static constexpr std::size_t kDigitCount = 68;
    static constexpr std::int64_t kAddsMax = std::int64_t{1} << 29U;

    void carry() noexcept;

    // Digits of 32 bits, the lowest first, each with room for delayed carries; then the counts of
    // NaNs, positive infinities and negative infinities.
    std::array<std::int64_t, kDigitCount + 3> state_{};
    std::int64_t adds_ = 0;  // Since the last carry().
};

/// In place: each sum becomes the sum over all ranks, the same on all. One all-reduce of 568 bytes
/// per sum, by way of the GPU if the group works there. Called by every rank with equally many
/// sums; blocks; throws as all_reduce.
void sum_over_ranks(ProcessGroup& group, std::span<ExactSum> sums);

}  // namespace regroup
