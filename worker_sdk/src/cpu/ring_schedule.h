// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace regroup::cpu {

/// Which chunk a rank sends to the next rank, and which it receives from the one before, at the
/// same time.
struct RingStep {
    std::uint32_t send_chunk = 0;
    std::uint32_t receive_chunk = 0;

    bool operator==(const RingStep&) const = default;
};

/// The two-phase ring all-reduce: the buffer is cut into as many chunks as there are ranks, and
/// every rank n talks only to its neighbours, N-1 times in each phase. For three ranks:
///
///     scatter-reduce   step 0           step 1            then rank n holds the sum of chunk n+1
///         rank 0       sends 0, gets 2  sends 2, gets 1
///         rank 1       sends 1, gets 0  sends 0, gets 2
///         rank 2       sends 2, gets 1  sends 1, gets 0
///     all-gather
///         rank 0       sends 1, gets 0  sends 0, gets 2   then every rank holds every sum
///         rank 1       sends 2, gets 1  sends 1, gets 0
///         rank 2       sends 0, gets 2  sends 2, gets 1
///
/// A rank sends in each step the chunk that it received in the step before, across the change of
/// phase too. So the whole operation is a single stream of 2(N-1) chunks: each rank begins with its
/// own chunk and then forwards the chunks that arrive.
class RingSchedule {
   public:
    /// Requires `rank` < `world_size`.
    RingSchedule(std::uint32_t rank, std::uint32_t world_size);

    [[nodiscard]] std::uint32_t next() const noexcept { return (rank_ + 1) % world_size_; }
    [[nodiscard]] std::uint32_t previous() const noexcept {
        return (rank_ + world_size_ - 1) % world_size_;
    }
    /// Steps of each phase.
    [[nodiscard]] std::uint32_t steps() const noexcept { return world_size_ - 1; }

    /// Sends chunk (n - s) and receives chunk (n - s - 1), modulo N. Requires `step` < `steps()`.
    [[nodiscard]] RingStep scatter_reduce(std::uint32_t step) const;
    /// Sends chunk (n + 1 - s) and receives chunk (n - s), modulo N. Requires `step` < `steps()`.
    [[nodiscard]] RingStep all_gather(std::uint32_t step) const;

   private:
    std::uint32_t rank_;
    std::uint32_t world_size_;
};

/// Elements [first, first + count) of a buffer.
struct Chunk {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// Part `index` of `count` elements cut into `parts`: in order, without gaps, no two differing by
/// more than one element. Requires `index` < `parts`.
[[nodiscard]] Chunk chunk_of(std::size_t count, std::uint32_t parts, std::uint32_t index);

}  // namespace regroup::cpu
