// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_collectives.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

// Buffers that are read in place are worked on in parts too, so that what one rank has reduced is
// still in a cache when the others fetch it.
constexpr std::size_t kDirectBytes = std::size_t{1} << 20U;
constexpr std::size_t kDirectBytesCrowded = std::size_t{8} << 20U;

}  // namespace

NodeCollectives::NodeCollectives(std::shared_ptr<const NodeMemory> memory, std::uint32_t rank,
                                 std::vector<std::string> names, Listener listener)
    : memory_(std::move(memory)),
      rank_(rank),
      world_size_(static_cast<std::uint32_t>(names.size())),
      barrier_(memory_, rank, std::move(names), std::move(listener)),
      regions_(rank),
      sources_(world_size_) {}

NodeCollectives::Shape NodeCollectives::shape_of(const Operation& operation) const {
    const Signature& signature = operation.signature;
    const bool root = signature.peer == rank_;
    const bool uneven = !operation.counts.empty();
    const ConstTensorView rows{operation.input.data,
                               uneven ? operation.input.count : signature.count * world_size_,
                               signature.dtype};
    switch (signature.kind) {
        case OperationKind::all_reduce:
            return sized(operation, {.offered = operation.buffer});
        case OperationKind::reduce:
            return sized(operation,
                         {.offered = operation.buffer, .may_share = operation.factor == 1.0});
        case OperationKind::reduce_scatter:
            return sized(operation,
                         {.offered = rows, .wide = true, .may_share = operation.factor == 1.0});
        case OperationKind::broadcast:
            return sized(operation, {.offered = operation.buffer, .contributes = root});
        case OperationKind::all_gather:
        case OperationKind::gather:
            return sized(operation, {.offered = operation.input});
        case OperationKind::scatter:
            // The others cannot tell from their own entries whether they can read the root's
            // buffer.
            return sized(operation,
                         {.offered = rows, .contributes = root, .wide = true, .may_share = false});
        case OperationKind::all_to_all:
            return sized(operation, {.offered = rows, .wide = true});
        case OperationKind::form:
        case OperationKind::barrier:
        case OperationKind::send:
        case OperationKind::recv:
        case OperationKind::new_group:
            break;
    }
    return {.contributes = false};
}

NodeCollectives::Shape NodeCollectives::sized(const Operation& operation, Shape shape) const {
    const std::size_t longest = operation.rows().longest();
    shape.slot_bytes =
        longest * item_bytes(operation.signature.dtype) * (shape.wide ? world_size_ : 1);
    return shape;
}

void NodeCollectives::carry_out(const Operation& operation, Instant now, const Signature& called) {
    barrier_.begin(called, now, operation.limit);
    if (operation.signature.kind == OperationKind::all_to_all && !operation.counts.empty()) {
        return uneven_all_to_all(operation);
    }
    const Shape shape = shape_of(operation);
    const Chunk all{0, operation.rows().longest()};
    enter(operation, shape);
    if (shape.small()) {
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            sources_[rank] = memory_->slot(rank, barrier_.half());
        }
        take(operation, shape, all, rank_ * all.count);
    } else if (find_sources()) {
        if (operation.signature.kind == OperationKind::all_reduce) {
            direct_all_reduce(operation);
        } else {
            take(operation, shape, all, operation.rows().offset(rank_));
        }
        barrier_.pass();  // Until then others may read this rank's buffer.
        barrier_.check_sources();
    } else if (operation.signature.kind == OperationKind::all_reduce ||
               operation.signature.kind == OperationKind::reduce) {
        staged_reduction(operation, shape);
    } else {
        staged_rows(operation, shape);
    }
    place_ = {};
}

void NodeCollectives::enter(const Operation& operation, const Shape& shape) {
    NodeEntry& entry = barrier_.next_entry();
    if (!shape.small() && shape.may_share) {
        place_ = regions_.find(shape.offered.data, shape.offered.bytes());
        entry.region = place_.region ? place_.region->number : 0;
        entry.offset = place_.offset;
    } else if (shape.small() && shape.contributes) {
        put(operation, shape, {0, operation.rows().longest()},
            memory_->slot(rank_, barrier_.half()));
    }
    barrier_.enter();
}

/// True if the buffers of all ranks lie in one region. This rank has mapped the region then.
bool NodeCollectives::find_sources() {
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        const NodeEntry& entry = barrier_.entry(rank);
        if (!place_.region || entry.region != place_.region->number) {
            return false;
        }
        sources_[rank] = place_.region->parts[rank].data() + entry.offset;
    }
    return true;
}

/// Writes some columns of the data that this rank offers, row after row. A row that is shorter
/// leaves a gap.
void NodeCollectives::put(const Operation& operation, const Shape& shape, Chunk columns,
                          std::byte* into) const {
    const DType dtype = operation.signature.dtype;
    const std::size_t item = item_bytes(dtype);
    const Rows rows = operation.rows(shape.offered.data);
    for (std::uint32_t row = 0; row < (shape.wide ? world_size_ : 1); ++row) {
        const std::size_t count =
            rows.count_in(shape.wide ? row : rank_, columns.first, columns.count);
        if (count == 0) {
            continue;
        }
        const std::byte* const part =
            (shape.wide ? rows.data(row) : static_cast<const std::byte*>(shape.offered.data)) +
            columns.first * item;
        std::byte* const target = into + row * columns.count * item;
        if (operation.factor != 1.0) {
            scale(dtype, target, part, count, operation.factor);
        } else {
            copy_bytes(target, part, count * item);
        }
    }
}

/// Computes some columns of the output from the sources. `row_offset` is where this rank's row
/// begins in a source with a row for each rank, in elements.
void NodeCollectives::take(const Operation& operation, const Shape& shape, Chunk columns,
                           std::size_t row_offset) {
    const Signature& signature = operation.signature;
    const std::size_t item = item_bytes(signature.dtype);
    const bool root = signature.peer == rank_;
    const bool for_root =
        signature.kind == OperationKind::reduce || signature.kind == OperationKind::gather;
    const bool from_root = signature.kind == OperationKind::broadcast;
    if ((for_root && !root) || (from_root && root) || operation.buffer.data == nullptr) {
        return;  // Nothing is for this rank.
    }
    auto* const out = static_cast<std::byte*>(operation.buffer.data) + columns.first * item;
    if (shape.wide) {
        for (const std::byte*& source : sources_) {
            source += row_offset * item;
        }
    }
    switch (signature.kind) {
        case OperationKind::reduce:
        case OperationKind::all_reduce:
        case OperationKind::reduce_scatter:
            return reduce_all(signature.reduce_op, signature.dtype, out, sources_,
                              operation.rows().count_in(rank_, columns.first, columns.count),
                              divisor_of(signature));
        case OperationKind::broadcast:
        case OperationKind::scatter:
            return copy_bytes(out, sources_[signature.peer], columns.count * item);
        case OperationKind::gather:
        case OperationKind::all_gather:
        case OperationKind::all_to_all:
            return take_rows(operation, columns);
        case OperationKind::form:
        case OperationKind::barrier:
        case OperationKind::send:
        case OperationKind::recv:
        case OperationKind::new_group:
            return;
    }
}

void NodeCollectives::take_rows(const Operation& operation, Chunk columns) const {
    const std::size_t item = item_bytes(operation.signature.dtype);
    const Rows output = operation.rows(operation.buffer.data);
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        copy_bytes(output.data(rank) + columns.first * item, sources_[rank],
                   output.count_in(rank, columns.first, columns.count) * item);
    }
}

// Part by part: rank i reduces chunk i of the part in its own buffer. After a barrier every rank
// copies the chunks of the others.
void NodeCollectives::direct_all_reduce(const Operation& operation) {
    const Signature& signature = operation.signature;
    const std::size_t item = item_bytes(signature.dtype);
    auto* const own = static_cast<std::byte*>(operation.buffer.data);
    const std::size_t part = (memory_->crowded() ? kDirectBytesCrowded : kDirectBytes) / item;
    std::vector<const std::byte*> here(world_size_);
    for (std::size_t first = 0; first < signature.count; first += part) {
        const std::size_t count = std::min(part, signature.count - first);
        const auto place_of = [&](Chunk chunk) { return (first + chunk.first) * item; };
        const Chunk mine = chunk_of(count, world_size_, rank_);
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            here[rank] = sources_[rank] + place_of(mine);
        }
        reduce_all(signature.reduce_op, signature.dtype, own + place_of(mine), here, mine.count,
                   divisor_of(signature));
        barrier_.pass();
        for (std::uint32_t i = 1; i < world_size_; ++i) {
            const std::uint32_t rank = (rank_ + i) % world_size_;
            const Chunk theirs = chunk_of(count, world_size_, rank);
            copy_bytes(own + place_of(theirs), sources_[rank] + place_of(theirs),
                       theirs.count * item);
        }
    }
}

// The same through the staging areas, and for one rank alone if there is a root.
void NodeCollectives::staged_reduction(const Operation& operation, const Shape& shape) {
    const Signature& signature = operation.signature;
    const std::size_t item = item_bytes(signature.dtype);
    auto* const own = static_cast<std::byte*>(operation.buffer.data);
    const bool wanted = signature.kind == OperationKind::all_reduce || signature.peer == rank_;
    const std::size_t part = memory_->staging_bytes() / item;
    for (std::size_t first = 0; first < signature.count; first += part) {
        const std::size_t count = std::min(part, signature.count - first);
        const std::uint32_t half = ++parts_ % 2;
        put(operation, shape, {first, count}, memory_->staging(rank_, half));
        barrier_.pass();
        const Chunk mine = chunk_of(count, world_size_, rank_);
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            sources_[rank] = memory_->staging(rank, half) + mine.first * item;
        }
        reduce_all(signature.reduce_op, signature.dtype, memory_->reduced(rank_), sources_,
                   mine.count, divisor_of(signature));
        barrier_.pass();
        for (std::uint32_t i = 0; wanted && i < world_size_; ++i) {
            const std::uint32_t rank = (rank_ + i) % world_size_;
            const Chunk theirs = chunk_of(count, world_size_, rank);
            copy_bytes(own + (first + theirs.first) * item, memory_->reduced(rank),
                       theirs.count * item);
        }
    }
}

// One barrier for each part: a staging area is free again when all ranks have passed the next one.
void NodeCollectives::staged_rows(const Operation& operation, const Shape& shape) {
    const Signature& signature = operation.signature;
    const std::size_t rows = shape.wide ? world_size_ : 1;
    const std::size_t columns = operation.rows().longest();
    const std::size_t part =
        std::max<std::size_t>(1, memory_->staging_bytes() / item_bytes(signature.dtype) / rows);
    for (std::size_t first = 0; first < columns; first += part) {
        const std::size_t count = std::min(part, columns - first);
        const std::uint32_t half = ++parts_ % 2;
        if (shape.contributes) {
            put(operation, shape, {first, count}, memory_->staging(rank_, half));
        }
        barrier_.pass();
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            sources_[rank] = memory_->staging(rank, half);
        }
        take(operation, shape, {first, count}, rank_ * count);
    }
}

// Each rank's whole input goes through its staging area, part by part. Every rank copies what is
// for it.
void NodeCollectives::uneven_all_to_all(const Operation& operation) {
    const std::size_t item = item_bytes(operation.signature.dtype);
    const std::vector<Chunk> wanted = exchange_counts(operation);
    const Rows output(operation.buffer.data, item, 0, operation.output_counts);
    const auto* const input = static_cast<const std::byte*>(operation.input.data);
    const std::size_t part = memory_->staging_bytes() / item;
    for (std::size_t first = 0; first < longest_input_; first += part) {
        const std::uint32_t half = ++parts_ % 2;
        const std::size_t own = operation.input.count - std::min(operation.input.count, first);
        copy_bytes(memory_->staging(rank_, half), input + first * item, std::min(part, own) * item);
        barrier_.pass();
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            const std::size_t begin = std::max(first, wanted[rank].first);
            const std::size_t end = std::min(first + part, wanted[rank].first + wanted[rank].count);
            if (begin < end) {
                copy_bytes(output.data(rank) + (begin - wanted[rank].first) * item,
                           memory_->staging(rank, half) + (begin - first) * item,
                           (end - begin) * item);
            }
        }
    }
}

/// Enters the collective, and returns which elements of each rank's input are for this rank.
std::vector<Chunk> NodeCollectives::exchange_counts(const Operation& operation) {
    ENSURE(world_size_ * sizeof(std::size_t) <= memory_->staging_bytes());
    static_cast<void>(barrier_.next_entry());
    const std::uint32_t half = ++parts_ % 2;
    copy_bytes(memory_->staging(rank_, half), operation.counts.data(),
               world_size_ * sizeof(std::size_t));
    barrier_.enter();
    std::vector<Chunk> wanted;
    longest_input_ = 0;
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        std::vector<std::size_t> counts(world_size_);
        copy_bytes(counts.data(), memory_->staging(rank, half), world_size_ * sizeof(std::size_t));
        const Rows rows(nullptr, 1, 0, counts);
        wanted.push_back({.first = rows.offset(rank_), .count = counts[rank_]});
        longest_input_ = std::max(longest_input_, rows.offset(world_size_));
        if (counts[rank_] != operation.output_counts[rank]) {
            throw rows_disagree(barrier_.name(rank), counts[rank_], barrier_.name(rank_),
                                operation.output_counts[rank], operation.signature.dtype);
        }
    }
    return wanted;
}

}  // namespace regroup::cpu
