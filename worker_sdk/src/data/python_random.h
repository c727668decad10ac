// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup::data {

/// The generator behind Python's `random` module: a Mersenne Twister (MT19937), seeded by an
/// integer as random.Random(seed) is, and its shuffle. std::mt19937 gives the same numbers from the
/// same state, but its state cannot be set this way.
class PythonRandom {
   public:
    explicit PythonRandom(std::uint64_t seed) noexcept;

    std::uint32_t next() noexcept;
    /// As random.getrandbits. Requires 1 to 64 bits.
    std::uint64_t bits(int count) noexcept;
    /// As random.randrange(bound): uniform in [0, bound). Requires bound > 0.
    std::uint64_t below(std::uint64_t bound) noexcept;
    /// As random.shuffle.
    void shuffle(std::span<std::uint64_t> values) noexcept;

   private:
    static constexpr std::size_t kStateCount = 624;

    void refill() noexcept;

    std::array<std::uint32_t, kStateCount> state_{};
    std::size_t used_ = kStateCount;
};

}  // namespace regroup::data
