// SPDX-License-Identifier: Apache-2.0
// A linear model that is trained with integers. Their sums do not depend on the order, so the
// parameters are the same to the last bit for every membership.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace example {

inline constexpr std::size_t kFeatures = 64;
/// Fixed point: 1.0 is 2^16.
inline constexpr int kFraction = 16;

/// A hash, the same on every platform.
inline std::uint64_t scramble(std::uint64_t value) {
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31U);
}

/// From -1 to 1.
inline std::int64_t noise(std::uint64_t seed) {
    return static_cast<std::int64_t>(scramble(seed) >> (63U - kFraction)) -
           (std::int64_t{1} << kFraction);
}

inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
    return (a * b) / (std::int64_t{1} << kFraction);
}

/// The values that ranks sum in each step.
struct Gradient {
    std::array<std::int64_t, kFeatures> weights{};
    std::int64_t loss = 0;
    std::int64_t samples = 0;  ///< How many, ...
    std::int64_t seen = 0;     ///< ... and which: the sum of their scrambled numbers.

    static constexpr std::size_t kCount = kFeatures + 3;
    [[nodiscard]] std::span<std::int64_t> numbers() { return {weights.data(), kCount}; }
};
static_assert(sizeof(Gradient) == Gradient::kCount * sizeof(std::int64_t));

inline std::int64_t mark_of(std::uint64_t sample) {
    return static_cast<std::int64_t>(scramble(~sample) >> 24U);
}

/// Learns the weights noise(0), noise(1), ... from samples that are computed from their numbers.
class Model {
   public:
    /// `ballast`: number of additional parameters, which change in each step.
    explicit Model(std::size_t ballast) : weights_(kFeatures), momentum_(kFeatures) {
        ballast_.resize(ballast);
    }

    void add_sample(std::uint64_t sample, Gradient& gradient) const {
        std::array<std::int64_t, kFeatures> features{};
        std::int64_t error = 0;
        for (std::size_t i = 0; i < kFeatures; ++i) {
            features[i] = noise(sample * kFeatures + i + 1'000'000);
            error += multiply(features[i], weights_[i] - noise(i));
        }
        for (std::size_t i = 0; i < kFeatures; ++i) {
            gradient.weights[i] += multiply(error, features[i]);
        }
        gradient.loss += multiply(error, error);
        gradient.samples += 1;
        gradient.seen += mark_of(sample);
    }

    /// `gradient`: the sum over all ranks.
    void step(const Gradient& gradient) {
        for (std::size_t i = 0; i < kFeatures; ++i) {
            momentum_[i] += gradient.weights[i] / gradient.samples - momentum_[i] / 8;
            weights_[i] -= momentum_[i] / 64;
        }
        totals_[0] += gradient.samples;
        totals_[1] += gradient.seen;
        for (std::size_t i = 0; i < ballast_.size(); i += 512) {
            ballast_[i] += gradient.seen;
        }
    }

    [[nodiscard]] std::span<std::int64_t> weights() { return weights_; }
    [[nodiscard]] std::span<std::int64_t> momentum() { return momentum_; }
    [[nodiscard]] std::span<std::int64_t> ballast() { return ballast_; }
    /// The number of samples so far, and the sum of their hashes.
    [[nodiscard]] std::span<std::int64_t> totals() { return totals_; }

    [[nodiscard]] std::uint64_t hash() const {
        std::uint64_t value = 0;
        for (const std::vector<std::int64_t>* part : {&weights_, &momentum_, &ballast_}) {
            for (const std::int64_t number : *part) {
                value = scramble(value ^ static_cast<std::uint64_t>(number)) + 1;
            }
        }
        return value;
    }

   private:
    std::vector<std::int64_t> weights_;
    std::vector<std::int64_t> momentum_;
    std::vector<std::int64_t> ballast_;
    std::array<std::int64_t, 2> totals_{};
};

}  // namespace example
