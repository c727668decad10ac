// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/lane_collectives.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

Piece whole_of(TensorView buffer) {
    return {.data = static_cast<std::byte*>(buffer.data), .bytes = buffer.bytes()};
}

/// The buffer as a Piece that is only sent: the data member of a Piece is not const.
Piece whole_of(ConstTensorView buffer) {
    return {.data = static_cast<std::byte*>(const_cast<void*>(buffer.data)),
            .bytes = buffer.bytes()};
}

/// Chunk `index` of `parts` of the buffer.
Piece piece_of(TensorView buffer, std::uint32_t parts, std::uint32_t index, Landing landing) {
    const Chunk chunk = chunk_of(buffer.count, parts, index);
    Piece piece = whole_of(part_of(buffer, chunk.first, chunk.count));
    piece.landing = landing;
    return piece;
}

/// Row `index` of `rows`, of `bytes` each.
Piece row_of(const void* rows, std::size_t bytes, std::uint32_t index) {
    return {.data = static_cast<std::byte*>(const_cast<void*>(rows)) + index * bytes,
            .bytes = bytes};
}

Piece row_of(const Rows& rows, std::uint32_t index) {
    return {.data = rows.data(index), .bytes = rows.bytes(index)};
}

/// `from` and `to` may be the same memory: an input may be its own row of the output.
void copy(const Piece& from, const Piece& to) {
    copy_bytes(to.data, from.data, from.bytes);
}

std::vector<std::uint32_t> first_ranks(std::uint32_t count) {
    std::vector<std::uint32_t> ranks(count);
    std::iota(ranks.begin(), ranks.end(), 0U);
    return ranks;
}

}  // namespace

LaneCollectives::LaneCollectives(CollectiveLane& lane)
    : lane_(lane), all_(first_ranks(lane.links().position().world_size)) {}

void LaneCollectives::among(const Participants& some) {
    ranks_ = some;
    schedule_ = RingSchedule(some.rank, some.count());
}

void LaneCollectives::all_reduce_among(const Participants& some, TensorView buffer, ReduceOp op) {
    among(some);
    all_reduce(buffer, op);
}

void LaneCollectives::broadcast_among(const Participants& some, TensorView buffer,
                                      std::uint32_t root) {
    among(some);
    broadcast(buffer, root);
}

void LaneCollectives::carry(Flow flow) {
    if (flow.to) {
        flow.to = ranks_.members[*flow.to];
    }
    if (flow.from) {
        flow.from = ranks_.members[*flow.from];
    }
    lane_.carry(flow);
}

void LaneCollectives::carry_out(const Operation& operation) {
    const Signature& signature = operation.signature;
    among({all_, lane_.links().position().rank});
    switch (signature.kind) {
        case OperationKind::all_reduce:
            if (operation.factor != 1.0) {
                scale(signature.dtype, operation.buffer.data, operation.buffer.data,
                      operation.buffer.count, operation.factor);
            }
            return all_reduce(operation.buffer, signature.reduce_op);
        case OperationKind::reduce:
            return reduce(operation);
        case OperationKind::reduce_scatter:
            return reduce_scatter(operation);
        case OperationKind::broadcast:
            return broadcast(operation.buffer, signature.peer);
        case OperationKind::all_gather:
            return all_gather(operation.input, operation.rows(operation.buffer.data));
        case OperationKind::gather:
            return gather(operation.input, operation.buffer, signature.peer);
        case OperationKind::scatter:
            return scatter(operation.input, operation.buffer, signature.peer);
        case OperationKind::all_to_all:
            return all_to_all(operation);
        case OperationKind::barrier:
            return doubling_all_reduce({nullptr, 0, DType::uint8}, ReduceOp::sum);
        case OperationKind::form:
        case OperationKind::send:
        case OperationKind::recv:
        case OperationKind::new_group:
            break;  // Others execute these.
    }
    ENSURE(false);
}

std::byte* LaneCollectives::staging() {
    if (!staging_) {
        staging_ = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
    }
    return staging_.get();
}

void LaneCollectives::send(std::uint32_t peer, Piece piece) {
    carry({.to = peer, .outgoing = {piece}, .head_bytes = piece.bytes});
}

void LaneCollectives::receive(std::uint32_t peer, Piece piece) {
    carry({.from = peer, .incoming = {piece}});
}

void LaneCollectives::all_reduce(TensorView buffer, ReduceOp op) {
    if (buffer.bytes() <= kSmallBytesMax) {
        doubling_all_reduce(buffer, op);
    } else {
        ring_all_reduce(buffer);
    }
}

// Both phases of the ring as one flow; see RingSchedule for why that is the same thing. Chunk c is
// combined in the order c, c+1, ..., c-1 of the ranks, and becomes final on rank c-1.
void LaneCollectives::ring_all_reduce(TensorView buffer) {
    Flow flow;
    flow.to = schedule_.next();
    flow.from = schedule_.previous();
    const auto add = [&](RingStep step, Landing landing) {
        flow.outgoing.push_back(piece_of(buffer, ranks_.count(), step.send_chunk, Landing::copy));
        flow.incoming.push_back(piece_of(buffer, ranks_.count(), step.receive_chunk, landing));
    };
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        const bool last = step + 1 == schedule_.steps();
        add(schedule_.scatter_reduce(step), last ? Landing::reduce_last : Landing::reduce);
    }
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        add(schedule_.all_gather(step), Landing::copy);
    }
    flow.head_bytes = flow.outgoing.front().bytes;
    carry(std::move(flow));
}

std::vector<std::uint32_t> LaneCollectives::doubling_receivers(std::uint32_t rank,
                                                               std::uint32_t count) {
    const std::uint32_t doubling_ranks = std::bit_floor(count);
    if (rank >= doubling_ranks) {
        return {rank - doubling_ranks};
    }
    std::vector<std::uint32_t> receivers;
    for (std::uint32_t distance = 1; distance < doubling_ranks; distance *= 2) {
        receivers.push_back(rank ^ distance);
    }
    if (rank + doubling_ranks < count) {
        receivers.push_back(rank + doubling_ranks);
    }
    return receivers;
}

// Recursive doubling: after step s every rank holds the reduction over its block of 2^(s+1) ranks.
//
//     0   1   2   3       block of the lower rank op block of the upper rank,
//     +---+   +---+       computed by both in that order
//     +-------+
//         +-------+
//
// Ranks beyond the largest power of two first send their values to a rank below it, and receive the
// result at the end.
void LaneCollectives::doubling_all_reduce(TensorView buffer, ReduceOp op) {
    const Piece mine = whole_of(buffer);
    const Piece theirs{.data = theirs_.data(), .bytes = mine.bytes};
    const std::uint32_t doubling_ranks = std::bit_floor(ranks_.count());
    const std::uint32_t extra_ranks = ranks_.count() - doubling_ranks;
    if (ranks_.rank >= doubling_ranks) {
        send(ranks_.rank - doubling_ranks, mine);
        return receive(ranks_.rank - doubling_ranks, mine);
    }
    if (ranks_.rank < extra_ranks) {
        receive(ranks_.rank + doubling_ranks, theirs);
        cpu::reduce(op, buffer.dtype, mine.data, theirs.data, buffer.count);
    }
    for (std::uint32_t distance = 1; distance < doubling_ranks; distance *= 2) {
        const std::uint32_t partner = ranks_.rank ^ distance;
        const bool last = distance * 2 == doubling_ranks;
        const double divisor = last ? last_divisor(op, buffer.dtype, ranks_in_all()) : 1;
        carry({.to = partner,
               .outgoing = {mine},
               .head_bytes = mine.bytes,
               .from = partner,
               .incoming = {theirs}});
        const std::byte* const lower = ranks_.rank < partner ? mine.data : theirs.data;
        const std::byte* const upper = ranks_.rank < partner ? theirs.data : mine.data;
        combine(op, buffer.dtype, mine.data, lower, upper, buffer.count, divisor);
    }
    if (ranks_.rank < extra_ranks) {
        send(ranks_.rank + doubling_ranks, mine);
    }
}

void LaneCollectives::reduce(const Operation& operation) {
    const TensorView buffer = operation.buffer;
    if (buffer.bytes() <= kSmallBytesMax) {
        return tree_reduce(operation);
    }
    const std::size_t columns = kStagingBytes / item_bytes(buffer.dtype);
    for (std::size_t first = 0; first < buffer.count; first += columns) {
        chain_reduce(part_of(buffer, first, std::min(columns, buffer.count - first)),
                     operation.factor, operation.signature.peer);
    }
}

// The tree of tree_broadcast, upwards: a rank adds its children's values to its own, the nearest
// child first, and hands the sum to its parent.
void LaneCollectives::tree_reduce(const Operation& operation) {
    const Signature& signature = operation.signature;
    const std::uint32_t distance = ranks_.distance_from(signature.peer);
    const std::size_t bytes = operation.buffer.bytes();
    const Piece theirs{.data = theirs_.data(), .bytes = bytes};
    Piece sum{.data = mine_.data(), .bytes = bytes};  // Only the root may change its buffer.
    if (distance == 0) {
        sum.data = static_cast<std::byte*>(operation.buffer.data);
    } else {
        copy(whole_of(operation.buffer), sum);
    }
    if (operation.factor != 1.0) {
        scale(signature.dtype, sum.data, sum.data, operation.buffer.count, operation.factor);
    }
    for (std::uint32_t bit = 1; bit < ranks_.count(); bit *= 2) {
        if ((distance & bit) != 0) {
            return send(ranks_.at(distance - bit, signature.peer), sum);
        }
        if (bit < ranks_.count() - distance) {
            receive(ranks_.at(distance + bit, signature.peer), theirs);
            const bool last = distance == 0 && bit >= ranks_.count() - bit;
            cpu::reduce(
                signature.reduce_op, signature.dtype, sum.data, theirs.data, operation.buffer.count,
                last ? last_divisor(signature.reduce_op, signature.dtype, ranks_in_all()) : 1);
        }
    }
}

// Along the ring to the root: each rank adds its values to the data that has arrived.
void LaneCollectives::chain_reduce(TensorView part, double factor, std::uint32_t root) {
    const Piece mine = whole_of(part);
    const Piece staged{.data = staging(), .bytes = mine.bytes};
    const bool scaled = factor != 1.0;
    if (scaled) {
        scale(part.dtype, ranks_.rank == root ? mine.data : staged.data, mine.data, part.count,
              factor);
    }
    Flow flow;
    if (ranks_.rank != root) {
        flow.to = schedule_.next();
        flow.outgoing = {staged};
    }
    if (schedule_.previous() == root) {
        flow.outgoing = {scaled ? staged : mine};
        flow.head_bytes = mine.bytes;
    } else {
        flow.from = schedule_.previous();
        flow.incoming = {{.data = staged.data,
                          .bytes = mine.bytes,
                          .landing = Landing::reduce,
                          .with = scaled ? staged.data : mine.data}};
    }
    if (ranks_.rank == root) {
        flow.incoming = {{.data = mine.data, .bytes = mine.bytes, .landing = Landing::reduce_last}};
    }
    carry(std::move(flow));
}

// The first phase of the ring, shifted back by one place, so that row n becomes final on rank n.
// The input must stay unchanged: partial sums lie in the staging area, as many columns at a time as
// fit.
void LaneCollectives::reduce_scatter(const Operation& operation) {
    const TensorView output = operation.buffer;
    const std::size_t item = item_bytes(output.dtype);
    const bool scaled = operation.factor != 1.0;
    const RingSchedule schedule(schedule_.previous(), ranks_.count());
    const Rows input = operation.rows(operation.input.data);
    // Rows of sums, and rows of scaled values on ranks that have a factor.
    const std::size_t columns = std::max<std::size_t>(1, kStagingBytes / item / 2 / ranks_.count());
    std::size_t first = 0;
    do {
        const std::size_t width = std::min(columns, input.longest() - first);
        const auto mine = [&](std::uint32_t row) {
            const std::size_t count = input.count_in(row, first, width);
            std::byte* const values = input.data(row) + first * item;
            std::byte* const staged = staging() + (ranks_.count() + row) * width * item;
            if (scaled) {
                scale(output.dtype, staged, values, count, operation.factor);
            }
            return Piece{.data = scaled ? staged : values, .bytes = count * item};
        };
        Flow flow;
        flow.to = schedule_.next();
        flow.from = schedule_.previous();
        flow.outgoing = {mine(schedule.scatter_reduce(0).send_chunk)};
        flow.head_bytes = flow.outgoing.front().bytes;
        for (std::uint32_t step = 0; step < schedule.steps(); ++step) {
            const bool last = step + 1 == schedule.steps();
            const Piece here = mine(schedule.scatter_reduce(step).receive_chunk);
            Piece sum{.data = staging() + step * width * item,
                      .bytes = here.bytes,
                      .landing = last ? Landing::reduce_last : Landing::reduce,
                      .with = here.data};
            if (!last) {
                flow.outgoing.push_back(sum);
            } else if (sum.bytes > 0) {
                sum.data = static_cast<std::byte*>(output.data) + first * item;
            }
            flow.incoming.push_back(sum);
        }
        carry(std::move(flow));
        first += columns;
    } while (first < input.longest());
}

void LaneCollectives::broadcast(TensorView buffer, std::uint32_t root) {
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
void LaneCollectives::tree_broadcast(Piece whole, std::uint32_t root) {
    const std::uint32_t distance = ranks_.distance_from(root);
    const std::uint32_t lowest = distance & (~distance + 1);
    if (distance != 0) {
        receive(ranks_.at(distance - lowest, root), whole);
    }
    for (std::uint32_t bit = distance == 0 ? std::bit_ceil(ranks_.count()) / 2 : lowest / 2;
         bit > 0; bit /= 2) {
        if (distance + bit < ranks_.count()) {
            send(ranks_.at(distance + bit, root), whole);
        }
    }
}

// Along the ring from the root: each rank forwards the data that has arrived.
void LaneCollectives::chain_broadcast(Piece whole, std::uint32_t root) {
    Flow flow;
    if (schedule_.next() != root) {
        flow.to = schedule_.next();
        flow.outgoing = {whole};
    }
    if (ranks_.rank == root) {
        flow.head_bytes = whole.bytes;
    } else {
        flow.from = schedule_.previous();
        flow.incoming = {whole};
    }
    carry(std::move(flow));
}

// Rows travel round the ring: a rank begins with its own and passes on all but the last to arrive.
void LaneCollectives::all_gather(ConstTensorView input, const Rows& output) {
    copy(whole_of(input), row_of(output, ranks_.rank));
    Flow flow;
    flow.to = schedule_.next();
    flow.from = schedule_.previous();
    for (std::uint32_t step = 0; step < schedule_.steps(); ++step) {
        const RingStep ring_step = schedule_.scatter_reduce(step);
        flow.outgoing.push_back(row_of(output, ring_step.send_chunk));
        flow.incoming.push_back(row_of(output, ring_step.receive_chunk));
    }
    flow.head_bytes = input.bytes();
    carry(std::move(flow));
}

// Every rank sends directly to the root: the root's link limits the speed in any order.
void LaneCollectives::gather(ConstTensorView input, TensorView output, std::uint32_t root) {
    if (ranks_.rank != root) {
        return send(root, whole_of(input));
    }
    copy(whole_of(input), row_of(output.data, input.bytes(), ranks_.rank));
    for (std::uint32_t distance = 1; distance < ranks_.count(); ++distance) {
        const std::uint32_t peer = ranks_.at(distance, root);
        receive(peer, row_of(output.data, input.bytes(), peer));
    }
}

void LaneCollectives::scatter(ConstTensorView input, TensorView output, std::uint32_t root) {
    if (ranks_.rank != root) {
        return receive(root, whole_of(output));
    }
    for (std::uint32_t distance = 1; distance < ranks_.count(); ++distance) {
        const std::uint32_t peer = ranks_.at(distance, root);
        send(peer, row_of(input.data, output.bytes(), peer));
    }
    copy(row_of(input.data, output.bytes(), ranks_.rank), whole_of(output));
}

// In step s every rank sends to the rank s places on, so that each rank receives from one sender at
// a time.
void LaneCollectives::all_to_all(const Operation& operation) {
    if (!operation.counts.empty()) {
        exchange_counts(operation);
    }
    const Rows input = operation.rows(operation.input.data);
    const Rows output(operation.buffer.data, item_bytes(operation.signature.dtype),
                      operation.signature.count, operation.output_counts);
    copy(row_of(input, ranks_.rank), row_of(output, ranks_.rank));
    for (std::uint32_t distance = 1; distance < ranks_.count(); ++distance) {
        const std::uint32_t to = ranks_.at(distance, ranks_.rank);
        const std::uint32_t from = ranks_.at(ranks_.count() - distance, ranks_.rank);
        carry({.to = to,
               .outgoing = {row_of(input, to)},
               .head_bytes = input.bytes(to),
               .from = from,
               .incoming = {row_of(output, from)}});
    }
}

// A rank would misread a row that is not as long as it expects.
void LaneCollectives::exchange_counts(const Operation& operation) {
    for (std::uint32_t distance = 1; distance < ranks_.count(); ++distance) {
        const std::uint32_t to = ranks_.at(distance, ranks_.rank);
        const std::uint32_t from = ranks_.at(ranks_.count() - distance, ranks_.rank);
        std::uint64_t sent = operation.counts[to];
        std::uint64_t expected = 0;
        carry({.to = to,
               .outgoing = {{reinterpret_cast<std::byte*>(&sent), sizeof sent}},
               .head_bytes = sizeof sent,
               .from = from,
               .incoming = {{reinterpret_cast<std::byte*>(&expected), sizeof expected}}});
        if (expected != operation.output_counts[from]) {
            throw rows_disagree(lane_.links().name(ranks_.members[from]), expected,
                                lane_.links().name(ranks_.members[ranks_.rank]),
                                operation.output_counts[from], operation.signature.dtype);
        }
    }
}

}  // namespace regroup::cpu
