// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstring>
#include <new>
#include <utility>

#include "worker_sdk/src/base/control_group.h"
#include "worker_sdk/src/group/request.h"

namespace regroup {
std::string_view to_string(ReduceOp op) noexcept {
    switch (op) {
        case ReduceOp::sum:
            return "sum";
        case ReduceOp::product:
            return "product";
        case ReduceOp::min:
            return "min";
        case ReduceOp::max:
            return "max";
        case ReduceOp::avg:
            return "avg";
    }
    return "unknown";
}

Work ProcessGroup::all_reduce(TensorView buffer, Reduction reduction) {
    return issue({.kind = OperationKind::all_reduce,
                  .input = buffer,
                  .output = buffer,
                  .reduction = reduction});
}

Work ProcessGroup::reduce(TensorView buffer, Reduction reduction, std::uint32_t root) {
    return issue({.kind = OperationKind::reduce,
                  .input = buffer,
                  .output = buffer,
                  .reduction = reduction,
                  .peer = root});
}

Work ProcessGroup::reduce_scatter(ConstTensorView input, TensorView output, Reduction reduction) {
    return issue({.kind = OperationKind::reduce_scatter,
                  .input = input,
                  .output = output,
                  .reduction = reduction});
}

Work ProcessGroup::broadcast(TensorView buffer, std::uint32_t root) {
    return issue(
        {.kind = OperationKind::broadcast, .input = buffer, .output = buffer, .peer = root});
}

Work ProcessGroup::all_gather(ConstTensorView input, TensorView output) {
    return issue({.kind = OperationKind::all_gather, .input = input, .output = output});
}

Work ProcessGroup::gather(ConstTensorView input, TensorView output, std::uint32_t root) {
    return issue({.kind = OperationKind::gather, .input = input, .output = output, .peer = root});
}

Work ProcessGroup::scatter(ConstTensorView input, TensorView output, std::uint32_t root) {
    return issue({.kind = OperationKind::scatter, .input = input, .output = output, .peer = root});
}

Work ProcessGroup::all_to_all(ConstTensorView input, TensorView output) {
    return issue({.kind = OperationKind::all_to_all, .input = input, .output = output});
}

Work ProcessGroup::barrier() {
    return issue({.kind = OperationKind::barrier});
}

Work ProcessGroup::send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    return issue({.kind = OperationKind::send, .input = buffer, .peer = peer, .tag = tag});
}

Work ProcessGroup::recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag) {
    return issue({.kind = OperationKind::recv, .output = buffer, .peer = peer, .tag = tag});
}

Buffer ProcessGroup::allocate(std::size_t bytes) {
    constexpr std::align_val_t kAlignment{4096};
    Buffer buffer{.bytes = bytes};
    // The kernel overcommits memory and kills a process when the memory is touched: check first.
    if (bytes <= available_memory_bytes()) {
        buffer.data = ::operator new(bytes, kAlignment, std::nothrow);
    }
    if (buffer.data == nullptr) {
        throw Error(Errc::system,
                    "allocate: there are no " + std::to_string(bytes) + " bytes of memory left");
    }
    buffer.owner = {buffer.data, [](void* data) { ::operator delete(data, kAlignment); }};
    std::memset(buffer.data, 0, bytes);
    return buffer;
}

void ProcessGroup::use_stream(Stream /*stream*/) {}

std::optional<Stream> ProcessGroup::current_stream() const {
    return std::nullopt;
}

void ProcessGroup::use_own_stream() {}

OperationBatch::~OperationBatch() {
    if (group_ != nullptr) {
        group_->abort("a batch of operations was never started");
    }
}

void OperationBatch::start() {
    if (group_ == nullptr) {
        throw Error(Errc::invalid_argument, "this batch of operations was started already");
    }
    std::exchange(group_, nullptr)->end_batch();
}

}  // namespace regroup
