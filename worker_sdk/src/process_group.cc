// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "worker_sdk/src/cpu/group_formation.h"
#include "worker_sdk/src/cpu/shared_memory.h"
#include "worker_sdk/src/nccl/form_group.h"

namespace regroup {
namespace {

using Factory = std::unique_ptr<ProcessGroup> (*)(const Context&, const ProcessGroupOptions&);

struct Backend {
    std::string_view name;
    Factory create;
};

constexpr std::array kBackends = {
    Backend{"cpu", cpu::form_group},
    Backend{"gloo", cpu::form_group},
    Backend{"nccl", nccl::form_group},
};

[[noreturn]] void refuse(std::string_view name) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    if (name == "mpi") {
        throw Error(Errc::invalid_argument,
                    "there is no \"mpi\" back end, because none is needed: under mpirun, mpiexec "
                    "or srun, \"cpu\" and \"nccl\" find rank and size by themselves, and programs "
                    "that call MPI can be linked with regroup::mpi (docs/collectives.md)");
    }
    throw Error(Errc::invalid_argument,
                quoted +
                    " is no back end; there is \"cpu\" (also spelt \"gloo\") for buffers in "
                    "host memory, and \"nccl\" for buffers on GPUs");
}

}  // namespace

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
    if (bytes <= cpu::SharedMemory::available_bytes()) {
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

std::unique_ptr<ProcessGroup> ProcessGroup::create(std::string_view backend, const Context& context,
                                                   const ProcessGroupOptions& options) {
    for (const Backend& candidate : kBackends) {
        if (candidate.name == backend) {
            return candidate.create(context, options);
        }
    }
    refuse(backend);
}

}  // namespace regroup
