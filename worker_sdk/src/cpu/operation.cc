// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/operation.h"

#include <utility>

#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/cpu/reduce.h"

namespace regroup::cpu {
namespace {

/// The buffer that the operation leaves its result in, or reads if it has only one.
TensorView buffer_of(const OperationRequest& request, bool is_root) {
    const bool is_read_only =
        request.kind == OperationKind::send || (request.kind == OperationKind::reduce && !is_root);
    return is_read_only ? TensorView(const_cast<void*>(request.input.data), request.input.count,
                                     request.input.dtype)
                        : request.output;
}

}  // namespace

Operation operation_of(const OperationRequest& request, std::uint32_t rank,
                       std::uint32_t world_size, Duration limit) {
    const TensorView buffer = buffer_of(request, request.peer == rank);
    const bool is_reduced = request.kind == OperationKind::all_reduce ||
                            request.kind == OperationKind::reduce ||
                            request.kind == OperationKind::broadcast;
    const bool has_one =
        request.kind == OperationKind::send || (is_reduced && buffer.data == request.input.data);
    return {.signature = signature_of(request, world_size),
            .buffer = buffer,
            .input = has_one ? ConstTensorView() : request.input,
            .factor = request.reduction.factor,
            .counts = request.counts,
            .output_counts = request.output_counts,
            .limit = request.options.timeout.value_or(limit)};
}

GroupFailure rows_disagree(const std::string& sender, std::size_t sent, const std::string& receiver,
                           std::size_t expected, DType dtype) {
    const std::string type = " x " + std::string(regroup::to_string(dtype));
    return {.code = Errc::invalid_argument,
            .cause = "the ranks do not agree: " + sender + " sends " + std::to_string(sent) + type +
                     " where " + receiver + " receives " + std::to_string(expected) + type};
}

void move_into_place(Operation& operation) {
    const OperationKind kind = operation.signature.kind;
    if (kind != OperationKind::all_reduce && kind != OperationKind::reduce) {
        return;
    }
    copy_bytes(operation.buffer.data, operation.input.data, operation.input.bytes());
    operation.input = {};
    if (kind == OperationKind::all_reduce && operation.factor != 1.0) {
        scale(operation.signature.dtype, operation.buffer.data, operation.buffer.data,
              operation.buffer.count, std::exchange(operation.factor, 1.0));
    }
}

}  // namespace regroup::cpu
