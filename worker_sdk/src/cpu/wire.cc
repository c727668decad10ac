// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {
namespace {

std::string_view to_string(OperationKind kind) {
    switch (kind) {
        case OperationKind::all_reduce:
            return "all_reduce";
        case OperationKind::broadcast:
            return "broadcast";
        case OperationKind::all_gather:
            return "all_gather";
        case OperationKind::barrier:
            return "barrier";
        case OperationKind::send:
            return "send";
        case OperationKind::recv:
            return "recv";
    }
    return "unknown operation";
}

}  // namespace

std::string describe(const Signature& signature) {
    const std::string name(to_string(signature.kind));
    std::string text = name + " #" + std::to_string(signature.number);
    const std::string elements =
        std::to_string(signature.count) + " x " + std::string(regroup::to_string(signature.dtype));
    const std::string peer = std::to_string(signature.peer);
    const std::string tag = std::to_string(signature.tag);
    switch (signature.kind) {
        case OperationKind::all_reduce:
            text += " (" + std::string(regroup::to_string(signature.reduce_op)) + ", " + elements;
            return text + ")";
        case OperationKind::broadcast:
            return text + " (root " + peer + ", " + elements + ")";
        case OperationKind::all_gather:
            return text + " (" + elements + ")";
        case OperationKind::barrier:
            return text;
        case OperationKind::send:
            return text + " to rank " + peer + " (tag " + tag + ", " + elements + ")";
        case OperationKind::recv:
            return text + " from rank " + peer + " (tag " + tag + ", " + elements + ")";
    }
    return text;
}

}  // namespace regroup::cpu
