// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker_sdk/src/cpu/collective_lane.h"
#include "worker_sdk/src/cpu/ring_schedule.h"

namespace regroup::cpu {

/// The algorithms, as flows over the lane. In all of them the order in which values are combined
/// depends on ranks alone, never on who arrives first, and each value is either combined in one
/// place and copied from there, or by the same expression everywhere: so results are bit-identical
/// on all ranks and in every repetition.
///
/// Each function returns when its collective is complete on this rank, and throws GroupFailure.
class Collectives {
   public:
    /// Up to here latency counts and not bandwidth. The same number on all ranks, or they would use
    /// different algorithms for one collective.
    static constexpr std::size_t kSmallBytesMax = std::size_t{16} << 10U;

    explicit Collectives(CollectiveLane& lane);

    void all_reduce(TensorView buffer, ReduceOp op);
    void broadcast(TensorView buffer, std::uint32_t root);
    void all_gather(ConstTensorView input, TensorView output);
    void barrier();

   private:
    void ring_all_reduce(TensorView buffer);
    void doubling_all_reduce(TensorView buffer, ReduceOp op);
    void tree_broadcast(Piece whole, std::uint32_t root);
    void chain_broadcast(Piece whole, std::uint32_t root);

    void send(std::uint32_t peer, Piece piece);
    void receive(std::uint32_t peer, Piece piece);

    CollectiveLane& lane_;
    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    const RingSchedule schedule_;
    alignas(64) std::array<std::byte, kSmallBytesMax> theirs_{};
};

}  // namespace regroup::cpu
