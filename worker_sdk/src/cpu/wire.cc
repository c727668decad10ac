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
    const std::string rows =
        elements + (signature.tag == 0 ? "" : " in rows of given counts, digest " + tag);
    switch (signature.kind) {
        case OperationKind::form:
            return name;
        case OperationKind::all_reduce:
            return text + " (" + op + ", " + elements + ")";
        case OperationKind::reduce_scatter:
            return text + " (" + op + ", " + rows + ")";
        case OperationKind::reduce:
            return text + " (" + op + ", root " + peer + ", " + elements + ")";
        case OperationKind::broadcast:
        case OperationKind::gather:
        case OperationKind::scatter:
            return text + " (root " + peer + ", " + elements + ")";
        case OperationKind::all_gather:
            return text + " (" + rows + ")";
        case OperationKind::all_to_all:
            return text + " (" +
                   (signature.tag == 0
                        ? elements
                        : "rows of given counts, " + std::string(to_string(signature.dtype))) +
                   ")";
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

std::string describe(const Standing& standing) {
    if (standing.latest.number == 0) {
        return "before the first collective";
    }
    return (standing.is_inside != 0 ? "in " : "after ") + describe(standing.latest);
}

}  // namespace regroup::cpu
