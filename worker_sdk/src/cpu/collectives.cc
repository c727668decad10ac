// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/collectives.h"

#include <bit>
#include <cstring>

#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

Piece whole_of(TensorView buffer) {
    return {.data = static_cast<std::byte*>(buffer.data), .bytes = buffer.bytes()};
}

/// Chunk `index` of `parts` of the buffer.
Piece piece_of(TensorView buffer, std::uint32_t parts, std::uint32_t index, Landing landing) {
    const Chunk chunk = chunk_of(buffer.count, parts, index);
    const std::size_t item = item_bytes(buffer.dtype);
    return {.data = static_cast<std::byte*>(buffer.data) + chunk.first * item,
            .bytes = chunk.count * item,
            .landing = landing};
}

}  // namespace

Collectives::Collectives(CollectiveLane& lane)
    : lane_(lane),
      rank_(lane.mesh().seat().rank),
      world_size_(lane.mesh().seat().world_size),
      schedule_(rank_, world_size_) {}

void Collectives::send(std::uint32_t peer, Piece piece) {
    lane_.carry({.to = peer, .outgoing = {piece}, .head_bytes = piece.bytes});
}

void Collectives::receive(std::uint32_t peer, Piece piece) {
    lane_.carry({.from = peer, .incoming = {piece}});
}

void Collectives::all_reduce(TensorView buffer, ReduceOp op) {
    if (buffer.bytes() <= kSmallBytesMax) {
        doubling_all_reduce(buffer, op);
    } else {
        ring_all_reduce(buffer);
    }
}

// Both phases of the ring as one flow; see RingSchedule for why that is the same thing. Chunk c is
// combined in the order c, c+1, ..., c-1 of the ranks, and becomes final on rank c-1.
void Collectives::ring_all_reduce(TensorView buffer) {
    Flow flow;
    flow.to = schedule_.next();
    flow.from = schedule_.previous();
    const auto add = [&](RingStep step, Landing landing) {
        flow.outgoing.push_back(piece_of(buffer, world_size_, step.send_chunk, Landing::copy));
        flow.incoming.push_back(piece_of(buffer, world_size_, step.receive_chunk, landing));
    };
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        const bool last = step + 1 == schedule_.steps();
        add(schedule_.scatter_reduce(step), last ? Landing::reduce_last : Landing::reduce);
    }
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        add(schedule_.all_gather(step), Landing::copy);
    }
    flow.head_bytes = flow.outgoing.front().bytes;
    lane_.carry(flow);
}

// Recursive doubling: after step s every rank holds the reduction over its block of 2^(s+1) ranks.
//
//     0   1   2   3       block of the lower rank op block of the upper rank,
//     +---+   +---+       computed by both in that order
//     +-------+
//         +-------+
//
// Ranks beyond the largest power of two hand their values to a rank below it before, and get the
// result back after.
void Collectives::doubling_all_reduce(TensorView buffer, ReduceOp op) {
    const Piece mine = whole_of(buffer);
    const Piece theirs{.data = theirs_.data(), .bytes = mine.bytes};
    const std::uint32_t doubling_ranks = std::bit_floor(world_size_);
    const std::uint32_t extra_ranks = world_size_ - doubling_ranks;
    if (rank_ >= doubling_ranks) {
        send(rank_ - doubling_ranks, mine);
        return receive(rank_ - doubling_ranks, mine);
    }
    if (rank_ < extra_ranks) {
        receive(rank_ + doubling_ranks, theirs);
        reduce(op, buffer.dtype, mine.data, theirs.data, buffer.count);
    }
    for (std::uint32_t distance = 1; distance < doubling_ranks; distance *= 2) {
        const std::uint32_t partner = rank_ ^ distance;
        lane_.carry({.to = partner,
                     .outgoing = {mine},
                     .head_bytes = mine.bytes,
                     .from = partner,
                     .incoming = {theirs}});
        if (rank_ < partner) {
            reduce(op, buffer.dtype, mine.data, theirs.data, buffer.count);
        } else if (mine.bytes > 0) {
            reduce(op, buffer.dtype, theirs.data, mine.data, buffer.count);
            std::memcpy(mine.data, theirs.data, mine.bytes);
        }
    }
    if (op == ReduceOp::avg) {
        divide(buffer.dtype, mine.data, buffer.count, world_size_);
    }
    if (rank_ < extra_ranks) {
        send(rank_ + doubling_ranks, mine);
    }
}

void Collectives::broadcast(TensorView buffer, std::uint32_t root) {
    const Piece whole = whole_of(buffer);
    if (whole.bytes <= kSmallBytesMax) {
        tree_broadcast(whole, root);
    } else {
        chain_broadcast(whole, root);
    }
}

// Binomial tree over distances from the root: the parent of a rank is found by clearing the lowest
// set bit of its distance, its children by setting one of the zeroes below that bit.
//
//     0 -+- 4 -+- 6 --- 7
//        |     +- 5
//        +- 2 --- 3
//        +- 1
void Collectives::tree_broadcast(Piece whole, std::uint32_t root) {
    const std::uint32_t distance = (rank_ + world_size_ - root) % world_size_;
    const auto rank_at = [&](std::uint32_t d) {
        return static_cast<std::uint32_t>((std::uint64_t{d} + root) % world_size_);
    };
    const std::uint32_t lowest = distance & (~distance + 1);
    if (distance != 0) {
        receive(rank_at(distance - lowest), whole);
    }
    for (std::uint32_t bit = distance == 0 ? std::bit_ceil(world_size_) / 2 : lowest / 2; bit > 0;
         bit /= 2) {
        if (distance + bit < world_size_) {
            send(rank_at(distance + bit), whole);
        }
    }
}

// Along the ring from the root, each rank passing on what has arrived so far.
void Collectives::chain_broadcast(Piece whole, std::uint32_t root) {
    Flow flow;
    if (schedule_.next() != root) {
        flow.to = schedule_.next();
        flow.outgoing = {whole};
    }
    if (rank_ == root) {
        flow.head_bytes = whole.bytes;
    } else {
        flow.from = schedule_.previous();
        flow.incoming = {whole};
    }
    lane_.carry(flow);
}

// Rows travel round the ring: a rank begins with its own and passes on all but the last to arrive.
void Collectives::all_gather(ConstTensorView input, TensorView output) {
    const std::size_t row_bytes = input.bytes();
    const auto row = [&](std::uint32_t rank) {
        return Piece{.data = static_cast<std::byte*>(output.data) + rank * row_bytes,
                     .bytes = row_bytes};
    };
    if (row_bytes > 0) {
        // memmove: the input may be this very row.
        std::memmove(row(rank_).data, input.data, row_bytes);
    }
    Flow flow;
    flow.to = schedule_.next();
    flow.from = schedule_.previous();
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        const RingStep ring_step = schedule_.scatter_reduce(step);
        flow.outgoing.push_back(row(ring_step.send_chunk));
        flow.incoming.push_back(row(ring_step.receive_chunk));
    }
    flow.head_bytes = row_bytes;
    lane_.carry(flow);
}

void Collectives::barrier() {
    doubling_all_reduce({nullptr, 0, DType::uint8}, ReduceOp::sum);
}

}  // namespace regroup::cpu
