// SPDX-License-Identifier: Apache-2.0
//
// The expected shuffles are Python's own, of CPython 3.11:
//
//     import random
//     generator = random.Random(SEED); indices = list(range(COUNT)); generator.shuffle(indices)
#include <regroup/data_partitioner.h>
#include <regroup/error.h>

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "worker_sdk/src/data/python_random.h"

namespace regroup {
namespace {

using Indices = std::vector<std::uint64_t>;

Indices all_of(const DataPartitioner& partitioner) {
    Indices all;
    for (std::size_t i = 0; i < partitioner.partition_count(); ++i) {
        all.insert(all.end(), partitioner.use(i).begin(), partitioner.use(i).end());
    }
    return all;
}

std::string complaint(const PartitionerOptions& options) {
    try {
        const DataPartitioner partitioner(options);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
    }
    return "no complaint";
}

TEST(DataPartitioner, DefaultsSplitPythonsShuffleIntoSlicesOf70And20And10Percent) {
    const DataPartitioner partitioner({.dataset_count = 20});
    EXPECT_EQ(partitioner.partition_count(), 3U);
    EXPECT_THAT(partitioner.use(0), ElementsAre(19, 13, 4, 9, 16, 7, 6, 8, 17, 18, 5, 12, 15, 11));
    EXPECT_THAT(partitioner.use(1), ElementsAre(10, 1, 2, 0));
    EXPECT_THAT(partitioner.use(2), ElementsAre(3, 14));
}

TEST(DataPartitioner, SeedsBeyond32BitsEqualThoseOfPython) {
    const DataPartitioner partitioner(
        {.dataset_count = 10, .sizes = {1.0}, .seed = (std::uint64_t{1} << 40U) + 7});
    EXPECT_THAT(partitioner.use(0), ElementsAre(0, 5, 2, 3, 6, 1, 8, 4, 7, 9));
}

TEST(DataPartitioner, TutorialsDataSetIsSplitAsInPython) {
    const DataPartitioner partitioner({.dataset_count = 60000});
    EXPECT_EQ(partitioner.use(0).size(), 42000U);
    EXPECT_EQ(partitioner.use(1).size(), 12000U);
    EXPECT_EQ(partitioner.use(2).size(), 6000U);
    EXPECT_THAT(partitioner.use(0).first(5), ElementsAre(33712, 36159, 45528, 25849, 53734));
    EXPECT_EQ(partitioner.use(0).back(), 11929U);
    EXPECT_EQ(partitioner.use(1).front(), 55834U);
    EXPECT_EQ(partitioner.use(2).back(), 50997U);
    const Indices all = all_of(partitioner);
    std::uint64_t fingerprint = 0;
    for (std::uint64_t i = 0; i < all.size(); ++i) {
        fingerprint += i * all[i];
    }
    EXPECT_EQ(fingerprint, 53956722211692U);
}

TEST(DataPartitioner, PartitionsNeverShareASampleForAnyWorldSize) {
    for (std::uint32_t world_size = 1; world_size <= 64; ++world_size) {
        const DataPartitioner partitioner(
            {.dataset_count = 1000, .sizes = DataPartitioner::equal_sizes(world_size)});
        Indices all = all_of(partitioner);
        for (std::size_t i = 0; i < world_size; ++i) {
            // int(fraction * length): 1 / 49 * 1000 and the like round down, never up.
            EXPECT_EQ(partitioner.use(i).size(),
                      static_cast<std::uint64_t>(1.0 / world_size * 1000));
        }
        std::ranges::sort(all);
        EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << world_size;
        EXPECT_LT(all.back(), 1000U);
    }
}

TEST(DataPartitioner, EmptyDataSetsAndPartitionsAreAllowed) {
    const DataPartitioner empty({.dataset_count = 0});
    EXPECT_THAT(empty.use(2), IsEmpty());
    const DataPartitioner one({.dataset_count = 1, .sizes = {0.5, 0.5}});
    EXPECT_THAT(one.use(0), IsEmpty());
}

TEST(DataPartitioner, InvalidSizesAreRefused) {
    EXPECT_THAT(complaint({.dataset_count = 10, .sizes = {0.7, 0.4}}), HasSubstr("more than 1"));
    EXPECT_THAT(complaint({.dataset_count = 10, .sizes = {1.5}}), HasSubstr("1.5"));
    EXPECT_THAT(complaint({.dataset_count = 10, .sizes = {-0.5}}), HasSubstr("-0.5"));
    EXPECT_THAT(complaint({.dataset_count = 10, .sizes = {}}), HasSubstr("no sizes"));
    EXPECT_EQ(complaint({.dataset_count = 10, .sizes = std::vector<double>(10, 0.1)}),
              "no complaint");
    const DataPartitioner partitioner({.dataset_count = 10});
    EXPECT_THROW((void)partitioner.use(3), Error);
}

TEST(BatchPerRank, BatchIsTheGlobalBatchDividedByTheWorldSize) {
    EXPECT_EQ(batch_per_rank(128, 1), 128U);
    EXPECT_EQ(batch_per_rank(128, 4), 32U);
    EXPECT_EQ(batch_per_rank(128, 3), 42U);
    EXPECT_THROW((void)batch_per_rank(3, 4), Error);
}

// random.Random(0): getrandbits(32) three times, getrandbits(40), getrandbits(64).
TEST(PythonRandom, NumbersEqualThoseOfPython) {
    data::PythonRandom random(0);
    EXPECT_EQ(random.bits(32), 3626764237U);
    EXPECT_EQ(random.bits(32), 1654615998U);
    EXPECT_EQ(random.bits(32), 3255389356U);
    EXPECT_EQ(random.bits(40), 463385069186U);
    EXPECT_EQ(random.bits(64), 4776171008201404212U);
}

}  // namespace
}  // namespace regroup
