// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {

std::string describe(const Signature& signature) {
    std::string name = name_of(signature.kind);
    std::string text = name + " #" + std::to_string(signature.number);
    const std::string elements =
        std::to_string(signature.count) + " x " + std::string(regroup::to_string(signature.dtype));
    const std::string op(regroup::to_string(signature.reduce_op));
    const std::string peer = std::to_string(signature.peer);
    const std::string tag = std::to_string(signature.tag);
    switch (signature.kind) {
        case OperationKind::form:
            return name;
        case OperationKind::all_reduce:
        case OperationKind::reduce_scatter:
            return text + " (" + op + ", " + elements + ")";
        case OperationKind::reduce:
            return text + " (" + op + ", root " + peer + ", " + elements + ")";
        case OperationKind::broadcast:
        case OperationKind::gather:
        case OperationKind::scatter:
            return text + " (root " + peer + ", " + elements + ")";
        case OperationKind::all_gather:
        case OperationKind::all_to_all:
            return text + " (" + elements + ")";
        case OperationKind::barrier:
        case OperationKind::new_group:
            return text;
        case OperationKind::send:
            return text + " to rank " + peer + " (tag " + tag + ", " + elements + ")";
        case OperationKind::recv:
            return text + " from rank " + peer + " (tag " + tag + ", " + elements + ")";
    }
    return text;
}

}  // namespace regroup::cpu
