// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/operation.h"

namespace regroup::cpu {

Operation operation_of(const OperationRequest& request, std::uint32_t world_size) {
    const ConstTensorView row = request.row();
    const bool is_send = request.kind == OperationKind::send;
    const TensorView sent(const_cast<void*>(request.input.data), request.input.count,
                          request.input.dtype);
    return {.signature = {.count = request.count(world_size),
                          .peer = request.peer,
                          .tag = request.tag,
                          .kind = request.kind,
                          .dtype = row.dtype,
                          .reduce_op = request.reduction.op},
            .buffer = is_send ? sent : request.output,
            .input = is_send || is_in_place(request.kind) ? ConstTensorView() : request.input,
            .factor = request.reduction.factor};
}

}  // namespace regroup::cpu
