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
        case ReduceOp::bit_and:
            return "bit_and";
        case ReduceOp::bit_or:
            return "bit_or";
        case ReduceOp::bit_xor:
            return "bit_xor";
    }
    return "unknown";
}

Work ProcessGroup::all_reduce(TensorView buffer, Reduction reduction,
                              const OperationOptions& options) {
    return all_reduce(buffer, buffer, reduction, options);
}

Work ProcessGroup::all_reduce(ConstTensorView input, TensorView output, Reduction reduction,
                              const OperationOptions& options) {
    return issue({.kind = OperationKind::all_reduce,
                  .input = input,
                  .output = output,
                  .reduction = reduction,
                  .options = options});
}

Work ProcessGroup::reduce(TensorView buffer, Reduction reduction, std::uint32_t root,
                          const OperationOptions& options) {
    return reduce(buffer, buffer, reduction, root, options);
}

Work ProcessGroup::reduce(ConstTensorView input, TensorView output, Reduction reduction,
                          std::uint32_t root, const OperationOptions& options) {
    return issue({.kind = OperationKind::reduce,
                  .input = input,
                  .output = output,
                  .reduction = reduction,
                  .peer = root,
                  .options = options});
}

Work ProcessGroup::reduce_scatter(ConstTensorView input, TensorView output, Reduction reduction,
                                  const OperationOptions& options) {
    return reduce_scatter(input, output, reduction, {}, options);
}

Work ProcessGroup::reduce_scatter(ConstTensorView input, TensorView output, Reduction reduction,
                                  std::span<const std::size_t> counts,
                                  const OperationOptions& options) {
    return issue({.kind = OperationKind::reduce_scatter,
                  .input = input,
                  .output = output,
                  .reduction = reduction,
                  .options = options,
                  .counts = {counts.begin(), counts.end()}});
}

Work ProcessGroup::broadcast(TensorView buffer, std::uint32_t root,
                             const OperationOptions& options) {
    return issue({.kind = OperationKind::broadcast,
                  .input = buffer,
                  .output = buffer,
                  .peer = root,
                  .options = options});
}

Work ProcessGroup::all_gather(ConstTensorView input, TensorView output,
                              const OperationOptions& options) {
    return all_gather(input, output, {}, options);
}

Work ProcessGroup::all_gather(ConstTensorView input, TensorView output,
                              std::span<const std::size_t> counts,
                              const OperationOptions& options) {
    return issue({.kind = OperationKind::all_gather,
                  .input = input,
                  .output = output,
                  .options = options,
                  .counts = {counts.begin(), counts.end()}});
}

Work ProcessGroup::gather(ConstTensorView input, TensorView output, std::uint32_t root,
                          const OperationOptions& options) {
    return issue({.kind = OperationKind::gather,
                  .input = input,
                  .output = output,
                  .peer = root,
                  .options = options});
}

Work ProcessGroup::scatter(ConstTensorView input, TensorView output, std::uint32_t root,
                           const OperationOptions& options) {
    return issue({.kind = OperationKind::scatter,
                  .input = input,
                  .output = output,
                  .peer = root,
                  .options = options});
}

Work ProcessGroup::all_to_all(ConstTensorView input, TensorView output,
                              const OperationOptions& options) {
    return all_to_all(input, output, {}, {}, options);
}

Work ProcessGroup::all_to_all(ConstTensorView input, TensorView output,
                              std::span<const std::size_t> input_counts,
                              std::span<const std::size_t> output_counts,
                              const OperationOptions& options) {
    return issue({.kind = OperationKind::all_to_all,
                  .input = input,
                  .output = output,
                  .options = options,
                  .counts = {input_counts.begin(), input_counts.end()},
                  .output_counts = {output_counts.begin(), output_counts.end()}});
}

Work ProcessGroup::barrier(const OperationOptions& options) {
    return issue({.kind = OperationKind::barrier, .options = options});
}

Work ProcessGroup::send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag,
                        const OperationOptions& options) {
    return issue({.kind = OperationKind::send,
                  .input = buffer,
                  .peer = peer,
                  .tag = tag,
                  .options = options});
}

Work ProcessGroup::recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag,
                        const OperationOptions& options) {
    return issue({.kind = OperationKind::recv,
                  .output = buffer,
                  .peer = peer,
                  .tag = tag,
                  .options = options});
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
