// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/collective_barrier.h"
#include "worker_sdk/src/cpu/node_memory.h"
#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/cpu/regions.h"
#include "worker_sdk/src/cpu/ring_schedule.h"
#include "worker_sdk/src/group/rows.h"
#include "worker_sdk/src/group/standing.h"

namespace regroup::cpu {

/// The algorithms for ranks that share memory. Each collective begins with a barrier, after which
/// every rank sees the entries of all ranks. Three paths follow:
///
///     small    every rank's values lie in its slot: each takes what it needs, and is done
///     direct   the buffers lie in one region: ranks read each other's, reductions by chunk, rank i
///              reducing chunk i for all
///     staged   part by part through the staging areas, likewise
///
/// All paths, sizes and positions combine values in the order of ranks. So a reduction gives the
/// same bits on all ranks, in every repetition, and for every division of a buffer. The 16-bit and
/// 8-bit formats are summed in float and rounded once.
///
/// One thread at a time, `stop` apart.
class NodeCollectives {
   public:
    using Listener = CollectiveBarrier::Listener;

    /// `names[i]` is rank i in errors.
    NodeCollectives(std::shared_ptr<const NodeMemory> memory, std::uint32_t rank,
                    std::vector<std::string> names, Listener listener);

    /// Returns when the collective, whose time begins `now`, is complete on this rank. The
    /// reduction is in place: see move_into_place. `called` is what the caller has called, which
    /// all ranks must agree on: the operation itself, or one that it is a step of. Throws
    /// GroupFailure.
    void carry_out(const Operation& operation, Instant now, const Signature& called);

    /// Makes `carry_out` fail soon, wherever it waits, now and in future. Tells the others that
    /// this rank leaves in order, or that its operations fail; the latter before a caller on this
    /// rank can learn of the failure and reuse the buffers: see `check_sources`. Any thread.
    void stop(bool orderly) noexcept { barrier_.stop(orderly); }
    [[nodiscard]] Regions& regions() noexcept { return regions_; }

   private:
    /// A collective as this rank sees it.
    struct Shape {
        ConstTensorView offered{};   ///< The data that this rank offers to others.
        bool contributes = true;     ///< Whether any rank reads it.
        bool wide = false;           ///< It is one row for each rank, not one for all.
        bool may_share = true;       ///< Others may read it where it lies.
        std::size_t slot_bytes = 0;  ///< The same on all ranks: what the largest offer needs.

        [[nodiscard]] bool small() const { return slot_bytes <= NodeMemory::kSlotBytes; }
    };

    [[nodiscard]] Shape shape_of(const Operation& operation) const;
    [[nodiscard]] Shape sized(const Operation& operation, Shape shape) const;
    void enter(const Operation& operation, const Shape& shape);
    [[nodiscard]] bool find_sources();

    void put(const Operation& operation, const Shape& shape, Chunk columns, std::byte* into) const;
    void take(const Operation& operation, const Shape& shape, Chunk columns,
              std::size_t row_offset);
    void take_rows(const Operation& operation, Chunk columns) const;
    void direct_all_reduce(const Operation& operation);
    void staged_reduction(const Operation& operation, const Shape& shape);
    void staged_rows(const Operation& operation, const Shape& shape);
    void uneven_all_to_all(const Operation& operation);
    [[nodiscard]] std::vector<Chunk> exchange_counts(const Operation& operation);

    [[nodiscard]] std::uint32_t divisor_of(const Signature& signature) const noexcept {
        return signature.reduce_op == ReduceOp::avg ? world_size_ : 1;
    }

    const std::shared_ptr<const NodeMemory> memory_;
    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    CollectiveBarrier barrier_;
    Regions regions_;

    std::uint32_t parts_ = 0;  // Parts staged so far.
    // Of the collective under way.
    Regions::Location place_;
    std::vector<const std::byte*> sources_;  // Where the ranks' values lie, by rank.
    std::size_t longest_input_ = 0;          // Of an all_to_all with uneven rows, in elements.
};

}  // namespace regroup::cpu
