// SPDX-License-Identifier: Apache-2.0
//
// The integers that the chaos job trains. Every step depends on all steps before it. A missing
// sample, a repeated step, or two swapped steps change all later values. The order of summation and
// the number of ranks do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace regroup::chaos {

/// Samples of one step, of all ranks together.
inline constexpr std::uint64_t kBatch = 24;
/// More than any run consumes.
inline constexpr std::uint64_t kDataset = std::uint64_t{1} << 40U;

/// A hash: every bit of the result depends on every bit of the argument.
inline std::uint64_t mix(std::uint64_t z) noexcept {
    z += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
}

class Model {
   public:
    explicit Model(std::size_t count) : weights_(count, 1), momentum_(count, 0) {}

    [[nodiscard]] std::span<std::int64_t> weights() noexcept { return weights_; }
    [[nodiscard]] std::span<std::int64_t> momentum() noexcept { return momentum_; }

    /// Adds the gradient of `sample`. It fits into 32 bits, so that the sum of a batch cannot
    /// overflow.
    void add_gradient(std::uint64_t sample, std::span<std::int64_t> gradient) const noexcept {
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            const std::uint64_t mixed =
                mix(sample ^ mix(i ^ static_cast<std::uint64_t>(weights_[i])));
            gradient[i] += static_cast<std::int64_t>(mixed >> 32U);
        }
    }

    /// The optimizer's step. `gradient` is the sum over the whole batch.
    void apply(std::span<const std::int64_t> gradient) noexcept {
        constexpr std::uint64_t kMask = (std::uint64_t{1} << 40U) - 1;
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            const auto sum = static_cast<std::uint64_t>(gradient[i]);
            const auto momentum = static_cast<std::uint64_t>(momentum_[i]);
            momentum_[i] = static_cast<std::int64_t>((momentum * 3 + sum) & kMask);
            weights_[i] = static_cast<std::int64_t>((static_cast<std::uint64_t>(weights_[i]) * 5 +
                                                     static_cast<std::uint64_t>(momentum_[i])) &
                                                    kMask);
        }
    }

    [[nodiscard]] std::uint64_t digest() const noexcept {
        std::uint64_t result = weights_.size();
        for (const auto& values : {std::span(weights_), std::span(momentum_)}) {
            for (const std::int64_t value : values) {
                result = mix(result ^ static_cast<std::uint64_t>(value));
            }
        }
        return result;
    }

   private:
    std::vector<std::int64_t> weights_;
    std::vector<std::int64_t> momentum_;
};

}  // namespace regroup::chaos
