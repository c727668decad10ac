// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/collectives.h"

#include <utility>

#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {

Collectives::Collectives(std::unique_ptr<CollectiveLinks> links, RollCall& roll_call,
                         NodeLayout layout, bool crowded)
    : links_(std::move(links)),
      layout_(std::move(layout)),
      lane_(*links_, roll_call, crowded),
      across_(lane_) {}

void Collectives::share(std::shared_ptr<const NodeMemory> memory, std::vector<std::string> names,
                        NodeCollectives::Listener listener) {
    if (memory) {
        node_ = std::make_unique<NodeCollectives>(
            std::move(memory), layout_.local, std::move(names),
            [this, heard = std::move(listener)](std::uint32_t place, const Standing& standing) {
                heard(layout_.neighbours()[place], standing);
            });
    }
    if (layout_.nodes.size() > 1) {
        hierarchy_.emplace(across_, node_.get(), layout_);
    }
}

void Collectives::carry_out(Operation& operation, Instant now) {
    if (is_in_memory()) {
        move_into_place(operation);
        return node_->carry_out(operation, now, operation.signature);
    }
    try {
        carry_out_over_connections(operation, now);
    } catch (GroupFailure& failure) {
        if (failure.code == Errc::deadline_exceeded &&
            operation.signature.kind != OperationKind::form) {
            // The ranks for which this rank waits may only wait for others: see RollCall::expire.
            failure.cause = "all ranks have called it, and it is not complete within " +
                            format_duration(operation.limit);
            failure.expired = {.number = operation.signature.number, .limit = operation.limit};
        }
        throw;
    }
}

void Collectives::carry_out_over_connections(Operation& operation, Instant now) {
    lane_.begin(operation.signature, now, operation.limit);
    operation.factor /= first_divisor(operation.signature.reduce_op, operation.signature.dtype,
                                      links_->position().world_size);
    move_into_place(operation);
    if (operation.signature.kind == OperationKind::form) {
        const std::vector<std::uint32_t> leaders = layout_.lane(0);
        across_.all_reduce_among({leaders, layout_.node}, operation.buffer, ReduceOp::min);
    } else if (hierarchy_ && HierarchicalCollectives::knows(operation.signature.kind)) {
        hierarchy_->carry_out(operation, now);
    } else {
        across_.carry_out(operation);
    }
    lane_.end();
}

void Collectives::stop(bool orderly) noexcept {
    links_->stop();
    if (node_) {
        node_->stop(orderly);
    }
}

}  // namespace regroup::cpu
