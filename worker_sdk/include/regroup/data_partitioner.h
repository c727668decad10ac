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
    /// floor(sizes[i] * dataset_count) samples, computed in double precision; what that leaves over
    /// is in no partition.
    std::vector<double> sizes = {0.7, 0.2, 0.1};
    std::uint64_t seed = 1234;
};

/// Splits a data set once and for all, as for training, validation and test, or among the ranks of
/// a job. For shards that are shuffled anew in every epoch there is DistributedSampler.
///
/// The indices of the data set are shuffled once by `seed`, and consecutive slices of them become
/// the partitions. The result depends on the options alone, not on the rank, the machine or the
/// compiler; the shuffle is that of Python's random.Random(seed).shuffle, so that a Python program
/// with the same seed holds the same partitions.
///
/// Costs 8 bytes per sample on every rank. A value; not thread-safe.
class DataPartitioner {
   public:
    /// Throws Error `invalid_argument` for sizes that are no shares of a whole.
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

/// The samples that each rank takes per step so that all ranks together take `global_batch`, or as
/// many of them as divide evenly: global_batch / world_size. Throws Error `invalid_argument` if
/// that leaves none.
[[nodiscard]] std::uint64_t batch_per_rank(std::uint64_t global_batch, std::uint32_t world_size);

}  // namespace regroup
