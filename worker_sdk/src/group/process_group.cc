// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstring>
#include <new>
#include <utility>

#include "worker_sdk/src/base/control_group.h"

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

namespace {

[[noreturn]] void refuse_operation(const ProcessGroup& group, std::string_view operation) {
    throw Error(Errc::invalid_argument, "the back end \"" + std::string(group.backend()) +
                                            "\" has no " + std::string(operation));
}

}  // namespace

Work ProcessGroup::reduce(TensorView /*buffer*/, Reduction /*reduction*/, std::uint32_t /*root*/) {
    refuse_operation(*this, "reduce");
}

Work ProcessGroup::reduce_scatter(ConstTensorView /*input*/, TensorView /*output*/,
                                  Reduction /*reduction*/) {
    refuse_operation(*this, "reduce_scatter");
}

Work ProcessGroup::gather(ConstTensorView /*input*/, TensorView /*output*/,
                          std::uint32_t /*root*/) {
    refuse_operation(*this, "gather");
}

Work ProcessGroup::scatter(ConstTensorView /*input*/, TensorView /*output*/,
                           std::uint32_t /*root*/) {
    refuse_operation(*this, "scatter");
}

Work ProcessGroup::all_to_all(ConstTensorView /*input*/, TensorView /*output*/) {
    refuse_operation(*this, "all_to_all");
}

std::unique_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<std::uint32_t>& /*ranks*/,
                                                      std::string_view /*name*/) {
    refuse_operation(*this, "new_group");
}

Buffer ProcessGroup::allocate(std::size_t bytes) {
    constexpr std::align_val_t kAlignment{4096};
    Buffer buffer{.bytes = bytes};
    // The kernel promises more than it has, and kills somebody when that is touched: ask first.
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
