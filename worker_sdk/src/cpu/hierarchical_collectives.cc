// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/hierarchical_collectives.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {
namespace {

/// A part that crosses the network while the node distributes the one before.
constexpr std::size_t kBroadcastBytes = std::size_t{1} << 20U;

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(LaneCollectives& across, NodeCollectives* node,
                                                 NodeLayout layout)
    : across_(across),
      node_(node),
      layout_(std::move(layout)),
      lanes_(layout_.lanes()),
      lane_(layout_.local < lanes_ ? layout_.lane(layout_.local) : std::vector<std::uint32_t>()),
      leaders_(layout_.lane(0)) {}

bool HierarchicalCollectives::knows(OperationKind kind) noexcept {
    return kind == OperationKind::all_reduce || kind == OperationKind::barrier ||
           kind == OperationKind::broadcast;
}

void HierarchicalCollectives::carry_out(const Operation& operation, Instant now) {
    ENSURE(knows(operation.signature.kind));
    now_ = now;
    called_ = operation.signature;
    if (operation.signature.kind == OperationKind::broadcast) {
        broadcast(operation);
    } else if (operation.buffer.bytes() <= LaneCollectives::kSmallBytesMax) {
        small_all_reduce(operation);
    } else {
        all_reduce(operation);
    }
}

/// A step among the ranks of this node, as the operation `kind`.
void HierarchicalCollectives::in_node(Operation step, OperationKind kind) {
    if (node_ == nullptr) {
        return;
    }
    step.signature.kind = kind;
    step.signature.count = step.buffer.count;
    step.signature.dtype = step.buffer.dtype;
    if (step.signature.reduce_op == ReduceOp::avg) {
        step.signature.reduce_op = ReduceOp::sum;  // The nodes' step divides.
    }
    node_->carry_out(step, now_, called_);
}

void HierarchicalCollectives::small_all_reduce(const Operation& operation) {
    Operation step{.signature = {.reduce_op = called_.reduce_op},
                   .buffer = operation.buffer,
                   .limit = operation.limit};
    in_node(step, OperationKind::reduce);
    if (layout_.local == 0) {
        across_.all_reduce_among({leaders_, layout_.node}, operation.buffer, called_.reduce_op);
    }
    in_node(step, OperationKind::broadcast);
}

void HierarchicalCollectives::all_reduce(const Operation& operation) {
    const TensorView whole = operation.buffer;
    std::vector<std::size_t> counts(layout_.neighbours().size());
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
        counts[lane] = chunk_of(whole.count, lanes_, lane).count;
    }
    const bool has_lane = layout_.local < lanes_;
    const Chunk mine = has_lane ? chunk_of(whole.count, lanes_, layout_.local) : Chunk();
    const TensorView chunk = part_of(whole, mine.first, mine.count);
    in_node({.signature = {.reduce_op = called_.reduce_op},
             .buffer = chunk,
             .input = whole,
             .counts = counts,
             .limit = operation.limit},
            OperationKind::reduce_scatter);
    if (has_lane) {
        across_.all_reduce_among({lane_, layout_.node}, chunk, called_.reduce_op);
    }
    in_node({.buffer = whole, .input = chunk, .counts = counts, .limit = operation.limit},
            OperationKind::all_gather);
}

void HierarchicalCollectives::broadcast(const Operation& operation) {
    const std::uint32_t root = operation.signature.peer;
    std::vector<std::uint32_t> members = leaders_;
    std::uint32_t root_node = 0;
    std::uint32_t place = 0;  // In this node, of the rank that hands the data on.
    for (std::uint32_t node = 0; node < members.size(); ++node) {
        const std::vector<std::uint32_t>& ranks = layout_.nodes[node];
        const auto found = std::find(ranks.begin(), ranks.end(), root);
        if (found != ranks.end()) {
            root_node = node;
            members[node] = root;
            place = node == layout_.node ? static_cast<std::uint32_t>(found - ranks.begin()) : 0;
        }
    }
    const TensorView whole = operation.buffer;
    const std::size_t columns = kBroadcastBytes / item_bytes(whole.dtype);
    std::size_t first = 0;
    do {
        const TensorView part = part_of(whole, first, std::min(columns, whole.count - first));
        if (layout_.local == place) {
            across_.broadcast_among({members, layout_.node}, part, root_node);
        }
        in_node({.signature = {.peer = place}, .buffer = part, .limit = operation.limit},
                OperationKind::broadcast);
        first += columns;
    } while (first < whole.count);
}

}  // namespace regroup::cpu
