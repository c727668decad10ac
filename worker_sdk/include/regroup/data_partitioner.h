// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace regroup {

struct PartitionerOptions {
    /// Samples in the data set.
    std::uint64_t dataset_count = 0;
    /// The share of each partition, each from 0 to 1 and together at most 1. Partition i gets
    /// floor(sizes[i] * dataset_count) samples, computed in double precision. The remaining samples
    /// are in no partition.
    std::vector<double> sizes = {0.7, 0.2, 0.1};
    std::uint64_t seed = 1234;
};

/// Splits a data set once, for instance into training, validation and test, or among the ranks of a
/// job. For shards that are shuffled in every epoch use DistributedSampler.
///
/// The indices of the data set are shuffled once by `seed`, and consecutive slices of them become
/// the partitions. The result depends on the options alone, not on the rank, the machine or the
/// compiler. The shuffle is the one of Python's random.Random(seed).shuffle, so a Python program
/// with the same seed gets the same partitions.
///
/// Costs 8 bytes per sample on every rank. A value; not thread-safe.
class DataPartitioner {
   public:
    /// Throws Error `invalid_argument` for a size outside 0 to 1, or a sum above 1.
    explicit DataPartitioner(const PartitionerOptions& options);

    /// The data set indices of one partition, valid as long as the partitioner. Throws Error
    /// `invalid_argument` if there is no such partition.
    [[nodiscard]] std::span<const std::uint64_t> use(std::size_t partition) const;

    [[nodiscard]] std::size_t partition_count() const noexcept { return firsts_.size() - 1; }

    /// `sizes` for one equal partition per rank.
    [[nodiscard]] static std::vector<double> equal_sizes(std::uint32_t world_size);

   private:
    std::vector<std::uint64_t> indices_;  // the whole data set, shuffled
    std::vector<std::uint64_t> firsts_;   // partition i is indices_[firsts_[i], firsts_[i + 1])
};

/// The samples that each rank takes per step for a global batch: global_batch / world_size, rounded
/// down. Throws Error `invalid_argument` if that is 0.
[[nodiscard]] std::uint64_t batch_per_rank(std::uint64_t global_batch, std::uint32_t world_size);

}  // namespace regroup
