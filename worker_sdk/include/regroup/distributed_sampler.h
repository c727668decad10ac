// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace regroup {

struct SamplerOptions {
    /// Samples in the dataset. At least 1, at most 2^63.
    std::uint64_t dataset_count = 0;
    /// This process among `world_size`.
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    /// False: every epoch visits the dataset in its own order.
    bool shuffle = true;
    /// The order of an epoch depends on seed + epoch only, not on the number of ranks, the machine
    /// or the compiler.
    std::uint64_t seed = 0;
    /// If the samples do not divide evenly among the ranks: true leaves out the last few, false
    /// repeats the first few so that every rank gets equally many.
    bool drop_last = false;
};

/// Positions [first, last) in the order of an epoch, counted over all ranks together.
struct SampleRange {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
};

/// Distributes the samples of each epoch among the ranks, without communication.
///
/// All ranks compute the same order of the dataset for an epoch, for any number of ranks; position
/// p of it goes to rank p mod world_size. A position therefore means the same under every world
/// size: a job that stopped at position p continues with `indices_from(p)` on any number of ranks.
///
/// The order is computed sample by sample and never stored: setting an epoch and jumping to a
/// position are O(1). A value; not thread-safe.
class DistributedSampler {
   public:
    /// Throws Error `invalid_argument` for an empty dataset or a rank outside the world.
    explicit DistributedSampler(const SamplerOptions& options);

    /// Chooses the order. Epoch 0 holds until the first call. Every rank must choose the same.
    void set_epoch(std::uint64_t epoch) noexcept;

    /// Samples per rank in a whole epoch, the same for every rank.
    [[nodiscard]] std::uint64_t count() const noexcept;

    /// This rank's dataset indices for the whole epoch, in order: count() of them.
    [[nodiscard]] std::vector<std::uint64_t> indices() const;

    /// This rank's part of the epoch from position `global_start` on, equally many for every rank.
    /// Throws Error `invalid_argument` if `global_start` is beyond the dataset.
    [[nodiscard]] std::vector<std::uint64_t> indices_from(std::uint64_t global_start) const;

    /// This rank's part of the positions of `range`, for instance of one global batch: first +
    /// rank, first + rank + world_size, and so on. Nothing is padded or dropped, so the ranks may
    /// differ by one sample. Throws Error `invalid_argument` if `range` is not within the dataset.
    [[nodiscard]] std::vector<std::uint64_t> shard(const SampleRange& range) const;

    /// The dataset index at `position` of the epoch's order. Requires position < dataset_count.
    [[nodiscard]] std::uint64_t index_at(std::uint64_t position) const noexcept;

   private:
    SamplerOptions options_;
    std::uint32_t half_bits_;
    std::array<std::uint64_t, 6> round_keys_{};
};

}  // namespace regroup
