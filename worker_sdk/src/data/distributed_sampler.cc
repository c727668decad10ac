// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>

#include <algorithm>
#include <bit>
#include <string>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/random.h"

namespace regroup {
namespace {

// Leaves room to count a padded epoch in 64 bits.
constexpr std::uint64_t kDatasetCountMax = std::uint64_t{1} << 63U;

}  // namespace

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
    if (options.dataset_count == 0 || options.dataset_count > kDatasetCountMax) {
        throw Error(Errc::invalid_argument, "sampler: a dataset of " +
                                                std::to_string(options.dataset_count) +
                                                " samples; it needs at least 1 and at most 2^63");
    }
    if (options.rank >= options.world_size) {
        throw Error(Errc::invalid_argument, "sampler: rank " + std::to_string(options.rank) +
                                                " is not below the world size, " +
                                                std::to_string(options.world_size));
    }
    const int bits = static_cast<int>(std::bit_width(options.dataset_count - 1));
    half_bits_ = static_cast<std::uint32_t>(std::max(1, (bits + 1) / 2));
    set_epoch(0);
}

void DistributedSampler::set_epoch(std::uint64_t epoch) noexcept {
    Random random(options_.seed + epoch);
    for (std::uint64_t& key : round_keys_) {
        key = random.next();
    }
}

std::uint64_t DistributedSampler::count() const noexcept {
    const bool uneven = options_.dataset_count % options_.world_size != 0;
    return options_.dataset_count / options_.world_size + (uneven && !options_.drop_last ? 1 : 0);
}

std::vector<std::uint64_t> DistributedSampler::indices() const {
    return indices_from(0);
}

std::vector<std::uint64_t> DistributedSampler::indices_from(std::uint64_t global_start) const {
    if (global_start > options_.dataset_count) {
        throw Error(Errc::invalid_argument,
                    "sampler: position " + std::to_string(global_start) + " is beyond the " +
                        std::to_string(options_.dataset_count) + " samples of the dataset");
    }
    const std::uint64_t left = options_.dataset_count - global_start;
    const bool uneven = left % options_.world_size != 0;
    const std::uint64_t per_rank =
        left / options_.world_size + (uneven && !options_.drop_last ? 1 : 0);
    std::vector<std::uint64_t> indices;
    indices.reserve(per_rank);
    for (std::uint64_t i = 0; i < per_rank; ++i) {
        const std::uint64_t position = global_start + options_.rank + i * options_.world_size;
        indices.push_back(index_at(position % options_.dataset_count));
    }
    return indices;
}

std::vector<std::uint64_t> DistributedSampler::shard(const SampleRange& range) const {
    if (range.first > range.last || range.last > options_.dataset_count) {
        throw Error(Errc::invalid_argument,
                    "sampler: positions " + std::to_string(range.first) + " to " +
                        std::to_string(range.last) + " are not a part of a dataset of " +
                        std::to_string(options_.dataset_count) + " samples");
    }
    std::vector<std::uint64_t> indices;
    const std::uint64_t count = range.last - range.first;
    for (std::uint64_t offset = options_.rank; offset < count; offset += options_.world_size) {
        indices.push_back(index_at(range.first + offset));
    }
    return indices;
}

// A pseudo-random permutation of [0, dataset_count), evaluated at one point: a Feistel network
// permutes [0, 4^half_bits), the smallest such range that holds the dataset, and a value that falls
// outside the dataset is permuted again until it falls inside. Each step can be undone, so that two
// positions never meet; the range is less than four times the dataset, so that few repetitions are
// needed.
std::uint64_t DistributedSampler::index_at(std::uint64_t position) const noexcept {
    ENSURE(position < options_.dataset_count);
    if (!options_.shuffle) {
        return position;
    }
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t value = position;
    do {
        std::uint64_t left = value >> half_bits_;
        std::uint64_t right = value & mask;
        for (const std::uint64_t key : round_keys_) {
            const std::uint64_t mixed = left ^ (Random(right ^ key).next() & mask);
            left = right;
            right = mixed;
        }
        value = left << half_bits_ | right;
    } while (value >= options_.dataset_count);
    return value;
}

}  // namespace regroup
