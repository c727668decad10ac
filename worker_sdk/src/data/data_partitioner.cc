// SPDX-License-Identifier: Apache-2.0
#include <regroup/data_partitioner.h>
#include <regroup/error.h>

#include <numeric>
#include <string>

#include "worker_sdk/src/data/python_random.h"

namespace regroup {
namespace {

[[noreturn]] void refuse_partition(const std::string& detail) {
    throw Error(Errc::invalid_argument, "partitioner: " + detail);
}

}  // namespace

DataPartitioner::DataPartitioner(const PartitionerOptions& options)
    : indices_(options.dataset_count), firsts_{0} {
    if (options.sizes.empty()) {
        refuse_partition("no sizes are given; it needs the share of at least one partition");
    }
    for (const double size : options.sizes) {
        if (!(size >= 0.0 && size <= 1.0)) {
            refuse_partition("the size " + std::to_string(size) + " is not a share from 0 to 1");
        }
        const auto count =
            static_cast<std::uint64_t>(size * static_cast<double>(options.dataset_count));
        if (count > options.dataset_count - firsts_.back()) {
            refuse_partition("the sizes add up to more than 1");
        }
        firsts_.push_back(firsts_.back() + count);
    }
    std::iota(indices_.begin(), indices_.end(), std::uint64_t{0});
    data::PythonRandom(options.seed).shuffle(indices_);
}

std::span<const std::uint64_t> DataPartitioner::use(std::size_t partition) const {
    if (partition >= partition_count()) {
        refuse_partition("there is no partition " + std::to_string(partition) + "; there are " +
                         std::to_string(partition_count()) + ", counted from 0");
    }
    const std::uint64_t first = firsts_[partition];
    return std::span(indices_).subspan(first, firsts_[partition + 1] - first);
}

std::vector<double> DataPartitioner::equal_sizes(std::uint32_t world_size) {
    return std::vector<double>(world_size, 1.0 / static_cast<double>(world_size));
}

std::uint64_t batch_per_rank(std::uint64_t global_batch, std::uint32_t world_size) {
    if (world_size == 0 || global_batch < world_size) {
        refuse_partition("a global batch of " + std::to_string(global_batch) +
                         " leaves no sample for some " + "of " + std::to_string(world_size) +
                         " ranks");
    }
    return global_batch / world_size;
}

}  // namespace regroup
