// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/sync_batch_norm.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

constexpr std::size_t kChannels = 3;
constexpr double kEpsilon = 1e-5;

/// [samples, kChannels], with means that are large beside the deviations.
std::vector<double> random_batch(std::size_t samples, std::uint64_t seed) {
    constexpr std::array<double, kChannels> kMeans{0.0, -3.0, 1e6};
    std::mt19937_64 random(seed);
    std::vector<double> values(samples * kChannels);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double noise = static_cast<double>(random() >> 11U) * 0x1.0p-52 - 1.0;
        values[i] = kMeans[i % kChannels] + noise;
    }
    return values;
}

BatchStatistics statistics_of(std::span<const double> x) {
    BatchStatistics all{.count = x.size() / kChannels,
                        .mean = std::vector<double>(kChannels),
                        .variance = std::vector<double>(kChannels)};
    for (std::size_t c = 0; c < kChannels; ++c) {
        long double sum = 0;
        long double squares = 0;
        for (std::size_t i = c; i < x.size(); i += kChannels) {
            sum += x[i];
        }
        const long double mean = sum / static_cast<long double>(all.count);
        for (std::size_t i = c; i < x.size(); i += kChannels) {
            squares += (x[i] - mean) * (x[i] - mean);
        }
        // NaN on a rank without elements, as libraries give.
        all.mean[c] = static_cast<double>(mean);
        all.variance[c] = static_cast<double>(squares / static_cast<long double>(all.count));
    }
    return all;
}

BatchGradientSums sums_of(std::span<const double> x, std::span<const double> dy,
                          std::span<const double> mean) {
    BatchGradientSums sums{std::vector<double>(kChannels), std::vector<double>(kChannels)};
    for (std::size_t i = 0; i < x.size(); ++i) {
        sums.dy[i % kChannels] += dy[i];
        sums.dy_xmu[i % kChannels] += dy[i] * (x[i] - mean[i % kChannels]);
    }
    return sums;
}

std::vector<double> forward(std::span<const double> x, const BatchStatistics& all) {
    std::vector<double> y;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % kChannels;
        y.push_back((x[i] - all.mean[c]) / std::sqrt(all.variance[c] + kEpsilon));
    }
    return y;
}

std::vector<double> backward(std::span<const double> x, std::span<const double> dy,
                             const BatchStatistics& all, const BatchGradientSums& sums) {
    const auto n = static_cast<double>(all.count);
    std::vector<double> dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % kChannels;
        const double variance = all.variance[c] + kEpsilon;
        const double away = (x[i] - all.mean[c]) / variance;
        dx.push_back((dy[i] - sums.dy[c] / n - away * sums.dy_xmu[c] / n) / std::sqrt(variance));
    }
    return dx;
}

/// The rows of one rank, of a batch in which rank i has `samples[i]` rows.
std::span<const double> rows_of(std::span<const double> batch, std::span<const std::size_t> samples,
                                std::uint32_t rank) {
    std::size_t first = 0;
    for (std::uint32_t i = 0; i < rank; ++i) {
        first += samples[i];
    }
    return batch.subspan(first * kChannels, samples[rank] * kChannels);
}

void expect_near(std::span<const double> values, std::span<const double> expected,
                 double tolerance) {
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], expected[i], tolerance) << i;
    }
}

TEST(SyncBatchNorm, RanksComputeWhatOneProcessComputesOfTheWholeBatch) {
    const std::vector<std::vector<std::size_t>> cases{{7},       {4, 4},       {5, 3},
                                                      {6, 0, 1}, {0, 1, 9, 2}, {0, 0, 1}};
    for (const std::vector<std::size_t>& samples : cases) {
        std::size_t total = 0;
        for (const std::size_t count : samples) {
            total += count;
        }
        const std::vector<double> x = random_batch(total, 1);
        const std::vector<double> dy = random_batch(total, 2);
        const BatchStatistics whole = statistics_of(x);
        const BatchGradientSums whole_sums = sums_of(x, dy, whole.mean);
        const std::vector<double> y = forward(x, whole);
        const std::vector<double> dx = backward(x, dy, whole, whole_sums);
        std::mutex mutex;
        std::map<std::vector<double>, int> seen;  // Results, to the bit.
        run_ranks(static_cast<std::uint32_t>(samples.size()), [&](ProcessGroup& group) {
            const auto my_x = rows_of(x, samples, group.rank());
            const auto my_dy = rows_of(dy, samples, group.rank());
            const BatchStatistics all = sync_batch_statistics(group, statistics_of(my_x));
            EXPECT_EQ(all.count, total);
            expect_near(all.mean, whole.mean, 1e-9);
            expect_near(all.variance, whole.variance, 1e-9);
            expect_near(forward(my_x, all), rows_of(y, samples, group.rank()), 1e-8);

            const BatchGradientSums sums =
                sync_batch_gradients(group, sums_of(my_x, my_dy, all.mean));
            // The gradients of the third channel are about 1e6.
            expect_near(backward(my_x, my_dy, all, sums), rows_of(dx, samples, group.rank()), 2e-2);

            std::vector<double> bits = all.mean;
            for (const auto* values : {&all.variance, &sums.dy, &sums.dy_xmu}) {
                bits.insert(bits.end(), values->begin(), values->end());
            }
            const std::lock_guard lock(mutex);
            ++seen[bits];
        });
        EXPECT_EQ(seen.size(), 1U);
    }
}

// A sum of squares in float64 has no digit of such a variance.
TEST(SyncBatchNorm, VarianceIsExactBesideAHugeMean) {
    run_ranks(2, [](ProcessGroup& group) {
        const double mean = 1e9 + (group.rank() == 0 ? -0.5 : 0.5);
        const BatchStatistics all =
            sync_batch_statistics(group, {.count = 4, .mean = {mean}, .variance = {0.25}});
        EXPECT_THAT(all.mean, ElementsAre(1e9));
        EXPECT_THAT(all.variance, ElementsAre(0.5));
    });
}

TEST(SyncBatchNorm, NoElementsOnAnyRankGiveZeroes) {
    run_ranks(2, [](ProcessGroup& group) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const BatchStatistics all =
            sync_batch_statistics(group, {.count = 0, .mean = {nan, nan}, .variance = {nan, nan}});
        EXPECT_EQ(all.count, 0U);
        EXPECT_THAT(all.mean, ElementsAre(0.0, 0.0));
        EXPECT_THAT(all.variance, ElementsAre(0.0, 0.0));
    });
}

TEST(SyncBatchNorm, RunningStatisticsMoveTowardsTheUnbiasedVariance) {
    const BatchStatistics batch{.count = 5, .mean = {4.0, -8.0}, .variance = {8.0, 0.5}};
    std::vector<float> mean{0.0F, 8.0F};
    std::vector<double> variance{1.0, 1.0};
    update_running_statistics(batch, 0.25, std::span(mean), std::span(variance));
    EXPECT_THAT(mean, ElementsAre(1.0F, 4.0F));
    EXPECT_THAT(variance, ElementsAre(0.75 + 0.25 * 10.0, 0.75 + 0.25 * 0.625));

    const BatchStatistics single{.count = 1, .mean = {4.0, 4.0}, .variance = {0.0, 0.0}};
    update_running_statistics(single, 0.25, std::span(mean), std::span(variance));
    EXPECT_THAT(mean, ElementsAre(1.0F, 4.0F));
}

TEST(SyncBatchNorm, WrongShapesAreRefused) {
    run_ranks(2, [](ProcessGroup& group) {
        EXPECT_THAT(error_of([&] {
                        static_cast<void>(sync_batch_statistics(
                            group, {.count = 1, .mean = {1.0}, .variance = {}}));
                    }),
                    is_error(Errc::invalid_argument, "the variance has 0 channels"));

        std::vector<std::int32_t> integers(1);
        std::vector<float> floats(1);
        const BatchStatistics batch{.count = 2, .mean = {1.0}, .variance = {1.0}};
        EXPECT_THAT(error_of([&] {
                        update_running_statistics(batch, 0.1, std::span(integers),
                                                  std::span(floats));
                    }),
                    is_error("not int32"));

        // On the ranks of a group: different numbers of channels.
        const std::vector<double> values(1 + group.rank());
        EXPECT_THAT(error_of([&] {
                        static_cast<void>(sync_batch_statistics(
                            group, {.count = 1, .mean = values, .variance = values}));
                    }),
                    is_error(Errc::invalid_argument));
    });
}

}  // namespace
}  // namespace regroup
