// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker_sdk/src/cpu/collective_lane.h"
#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/cpu/ring_schedule.h"
#include "worker_sdk/src/group/rows.h"

namespace regroup::cpu {

/// Elements [first, first + count) of the buffer.
[[nodiscard]] inline TensorView part_of(TensorView buffer, std::size_t first, std::size_t count) {
    return {static_cast<std::byte*>(buffer.data) + first * item_bytes(buffer.dtype), count,
            buffer.dtype};
}

/// The ranks that take part in a part of a collective: `members`, which are ranks of the group.
struct Participants {
    std::span<const std::uint32_t> members{};
    std::uint32_t rank = 0;  ///< This rank is members[rank]; a root is an index too.

    [[nodiscard]] std::uint32_t count() const noexcept {
        return static_cast<std::uint32_t>(members.size());
    }
    [[nodiscard]] std::uint32_t distance_from(std::uint32_t root) const noexcept {
        return rank >= root ? rank - root : rank + (count() - root);
    }
    [[nodiscard]] std::uint32_t at(std::uint32_t distance, std::uint32_t root) const noexcept {
        return static_cast<std::uint32_t>((std::uint64_t{distance} + root) % count());
    }
};

/// The algorithms for ranks that are connected, as flows over the lane. Results are bit-identical
/// on all ranks and in every repetition: the order in which values are combined depends on ranks
/// alone, not on arrival. One rank combines a value and the others copy it, or all ranks evaluate
/// the same expression.
class LaneCollectives {
   public:
    /// Up to this size latency dominates. All ranks must use the same number, or they would use
    /// different algorithms for one collective.
    static constexpr std::size_t kSmallBytesMax = std::size_t{16} << 10U;
    /// Memory that a collective may use beyond its buffers. Larger collectives run in parts.
    static constexpr std::size_t kStagingBytes = std::size_t{4} << 20U;

    explicit LaneCollectives(CollectiveLane& lane);

    /// The ranks to which rank `rank` of `count` sends in a small all_reduce.
    [[nodiscard]] static std::vector<std::uint32_t> doubling_receivers(std::uint32_t rank,
                                                                       std::uint32_t count);

    /// Returns when the collective, which the lane has begun, is complete on this rank. The
    /// reduction is in place: see move_into_place. Throws GroupFailure.
    void carry_out(const Operation& operation);

    // Parts of a collective of all ranks. An average divides by the number of all ranks of the
    // group.
    void all_reduce_among(const Participants& some, TensorView buffer, ReduceOp op);
    void broadcast_among(const Participants& some, TensorView buffer, std::uint32_t root);

   private:
    void all_reduce(TensorView buffer, ReduceOp op);
    void ring_all_reduce(TensorView buffer);
    void doubling_all_reduce(TensorView buffer, ReduceOp op);
    void reduce(const Operation& operation);
    void tree_reduce(const Operation& operation);
    void chain_reduce(TensorView part, double factor, std::uint32_t root);
    void reduce_scatter(const Operation& operation);
    void broadcast(TensorView buffer, std::uint32_t root);
    void tree_broadcast(Piece whole, std::uint32_t root);
    void chain_broadcast(Piece whole, std::uint32_t root);
    void all_gather(ConstTensorView input, const Rows& output);
    void gather(ConstTensorView input, TensorView output, std::uint32_t root);
    void scatter(ConstTensorView input, TensorView output, std::uint32_t root);
    void all_to_all(const Operation& operation);
    void exchange_counts(const Operation& operation);

    void among(const Participants& some);
    void carry(Flow flow);
    void send(std::uint32_t peer, Piece piece);
    void receive(std::uint32_t peer, Piece piece);
    [[nodiscard]] std::uint32_t ranks_in_all() const noexcept {
        return static_cast<std::uint32_t>(all_.size());
    }
    [[nodiscard]] std::byte* staging();

    CollectiveLane& lane_;
    const std::vector<std::uint32_t> all_;
    // Of the collective under way.
    Participants ranks_;
    RingSchedule schedule_{0, 1};
    std::unique_ptr<std::byte[]> staging_;  // Made when first needed.
    alignas(64) std::array<std::byte, kSmallBytesMax> mine_{};
    alignas(64) std::array<std::byte, kSmallBytesMax> theirs_{};
};

}  // namespace regroup::cpu
