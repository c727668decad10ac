// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup {
namespace {

using Indices = std::vector<std::uint64_t>;

Indices iota(std::uint64_t count) {
    Indices values(count);
    std::iota(values.begin(), values.end(), std::uint64_t{0});
    return values;
}

Indices sorted(Indices values) {
    std::ranges::sort(values);
    return values;
}

Indices order_of(const DistributedSampler& sampler, std::uint64_t count) {
    Indices order;
    for (std::uint64_t position = 0; position < count; ++position) {
        order.push_back(sampler.index_at(position));
    }
    return order;
}

TEST(DistributedSampler, EveryEpochIsAPermutationForEveryDatasetUpTo300) {
    for (std::uint64_t count = 1; count <= 300; ++count) {
        DistributedSampler sampler({.dataset_count = count, .seed = count});
        for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
            sampler.set_epoch(epoch);
            ASSERT_EQ(sorted(order_of(sampler, count)), iota(count)) << count << " samples";
        }
    }
}

// Whether the ranks together get the rest of the epoch from `start` on, evenly and without overlap.
void check_sharing(SamplerOptions options, std::uint64_t start) {
    const std::uint64_t count = options.dataset_count;
    const std::uint64_t left = count - start;
    std::uint64_t per_rank = left / options.world_size;
    if (!options.drop_last && left % options.world_size != 0) {
        ++per_rank;
    }
    Indices dealt;
    for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
        const DistributedSampler sampler(options);
        const Indices part = sampler.indices_from(start);
        ASSERT_EQ(part.size(), per_rank);
        ASSERT_TRUE(start != 0 || sampler.count() == per_rank);
        dealt.insert(dealt.end(), part.begin(), part.end());
    }
    options.rank = 0;
    const DistributedSampler any(options);
    Indices expected;
    for (std::uint64_t i = 0; i < per_rank * options.world_size; ++i) {
        expected.push_back(any.index_at((start + i) % count));
    }
    ASSERT_EQ(sorted(dealt), sorted(expected));
}

TEST(DistributedSampler, RanksShareTheRestEvenlyAndWithoutOverlap) {
    for (std::uint64_t count = 1; count <= 24; ++count) {
        for (std::uint32_t world_size = 1; world_size <= 7; ++world_size) {
            for (std::uint64_t start = 0; start <= count; ++start) {
                SCOPED_TRACE(::testing::Message() << count << " samples from " << start << " over "
                                                  << world_size << " ranks");
                const SamplerOptions padding{
                    .dataset_count = count, .world_size = world_size, .seed = 5};
                check_sharing(padding, start);
                SamplerOptions dropping = padding;
                dropping.drop_last = true;
                check_sharing(dropping, start);
            }
        }
    }
}

TEST(DistributedSampler, RankTakesItsIndexAndThenEveryWorldSizeth) {
    const DistributedSampler sampler(
        {.dataset_count = 10, .rank = 1, .world_size = 4, .shuffle = false});
    EXPECT_EQ(sampler.indices(), (Indices{1, 5, 9}));
    const DistributedSampler last(
        {.dataset_count = 10, .rank = 3, .world_size = 4, .shuffle = false});
    EXPECT_EQ(last.indices(), (Indices{3, 7, 1})) << "padded from the beginning";
}

TEST(DistributedSampler, StepsPerEpochEqualThoseOfTheTutorial) {
    constexpr std::uint64_t kBatch = 32;
    const DistributedSampler two({.dataset_count = 2048, .rank = 0, .world_size = 2});
    EXPECT_EQ(two.count() / kBatch, 32U);
    const DistributedSampler four({.dataset_count = 2048, .rank = 0, .world_size = 4});
    EXPECT_EQ(four.count() / kBatch, 16U);
}

TEST(DistributedSampler, GlobalBatchesAreTheSameForEveryWorldSize) {
    constexpr std::uint64_t kCount = 1000;
    const DistributedSampler alone({.dataset_count = kCount, .seed = 3});
    for (std::uint32_t world_size = 2; world_size <= 8; ++world_size) {
        for (const SampleRange range : {SampleRange{0, 64}, {64, 128}, {990, 1000}, {7, 7}}) {
            Indices dealt;
            for (std::uint32_t rank = 0; rank < world_size; ++rank) {
                const DistributedSampler sampler(
                    {.dataset_count = kCount, .rank = rank, .world_size = world_size, .seed = 3});
                const Indices part = sampler.shard(range);
                dealt.insert(dealt.end(), part.begin(), part.end());
            }
            EXPECT_EQ(sorted(dealt), sorted(alone.shard(range)));
        }
    }
}

TEST(DistributedSampler, JobResumedOnFewerRanksSeesEverySampleOnce) {
    constexpr std::uint64_t kCount = 100;
    constexpr std::uint64_t kStopped = 40;
    Indices seen;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const DistributedSampler sampler(
            {.dataset_count = kCount, .rank = rank, .world_size = 4, .seed = 8});
        const Indices part = sampler.shard({0, kStopped});
        seen.insert(seen.end(), part.begin(), part.end());
    }
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const DistributedSampler sampler(
            {.dataset_count = kCount, .rank = rank, .world_size = 3, .seed = 8});
        const Indices part = sampler.indices_from(kStopped);
        seen.insert(seen.end(), part.begin(), part.end());
    }
    EXPECT_EQ(sorted(seen), iota(kCount));
}

TEST(DistributedSampler, OrderIsTheSameOnEveryPlatform) {
    const DistributedSampler sampler({.dataset_count = 10, .seed = 42});
    EXPECT_EQ(order_of(sampler, 10), (Indices{0, 3, 2, 9, 5, 6, 1, 7, 8, 4}));
}

TEST(DistributedSampler, EpochAndSeedBothChangeTheOrder) {
    DistributedSampler sampler({.dataset_count = 1000, .seed = 1});
    const Indices first = order_of(sampler, 1000);
    sampler.set_epoch(1);
    const Indices second = order_of(sampler, 1000);
    EXPECT_NE(first, second);
    sampler.set_epoch(0);
    EXPECT_EQ(order_of(sampler, 1000), first);
    const DistributedSampler other({.dataset_count = 1000, .seed = 2});
    EXPECT_EQ(order_of(other, 1000), second) << "the order follows seed + epoch";
    const DistributedSampler plain({.dataset_count = 1000, .shuffle = false, .seed = 1});
    EXPECT_EQ(order_of(plain, 1000), iota(1000));
}

// 24 orders of four samples, each expected 500 times: all must occur, none far too often.
TEST(DistributedSampler, AllOrdersAreAboutEquallyLikely) {
    std::map<Indices, int> frequency;
    for (std::uint64_t seed = 0; seed < 12000; ++seed) {
        ++frequency[order_of(DistributedSampler({.dataset_count = 4, .seed = seed}), 4)];
    }
    EXPECT_EQ(frequency.size(), 24U);
    for (const auto& [order, times] : frequency) {
        EXPECT_GT(times, 350);
        EXPECT_LT(times, 650);
    }
}

// In a shuffled order neighbours are as far apart as chance has it: a third of the dataset on
// average.
TEST(DistributedSampler, NeighboursAreFarApart) {
    constexpr std::uint64_t kCount = 5000;
    const Indices order =
        order_of(DistributedSampler({.dataset_count = kCount, .seed = 1}), kCount);
    double distance = 0.0;
    for (std::size_t i = 1; i < order.size(); ++i) {
        distance += std::abs(static_cast<double>(order[i]) - static_cast<double>(order[i - 1]));
    }
    EXPECT_NEAR(distance / static_cast<double>(kCount - 1), kCount / 3.0, kCount * 0.02);
}

TEST(DistributedSampler, HugeDatasetsNeedNoTime) {
    constexpr std::uint64_t kHuge = std::uint64_t{1} << 63U;
    const DistributedSampler sampler({.dataset_count = kHuge, .rank = 1, .world_size = 3});
    EXPECT_EQ(sampler.shard({kHuge - 10, kHuge}).size(), 3U);
    EXPECT_EQ(sampler.indices_from(kHuge - 10).size(), 4U);
}

TEST(DistributedSampler, InvalidOptionsAreRefused) {
    EXPECT_THROW(DistributedSampler({.dataset_count = 0}), Error);
    EXPECT_THROW(DistributedSampler({.dataset_count = UINT64_MAX}), Error);
    EXPECT_THROW(DistributedSampler({.dataset_count = 1, .rank = 2, .world_size = 2}), Error);
    EXPECT_THROW(DistributedSampler({.dataset_count = 1, .world_size = 0}), Error);
    const DistributedSampler sampler({.dataset_count = 10});
    EXPECT_THROW((void)sampler.indices_from(11), Error);
    EXPECT_THROW((void)sampler.shard({5, 11}), Error);
    EXPECT_THROW((void)sampler.shard({6, 5}), Error);
    EXPECT_TRUE(sampler.indices_from(10).empty());
}

}  // namespace
}  // namespace regroup
