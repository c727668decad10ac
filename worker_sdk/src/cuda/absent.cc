// SPDX-License-Identifier: Apache-2.0
// GPUs, in a build that knows nothing of them.
#include <regroup/cuda.h>
#include <regroup/error.h>

#include <string_view>

#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/nccl/form_group.h"

namespace regroup {
namespace {

constexpr const char* kAbsent =
    "this build of regroup has no \"nccl\" back end and no GPU code: build it where the CUDA "
    "toolkit 12 or newer and NCCL's header nccl.h are installed (cmake -DREGROUP_CUDA=ON says "
    "which of them is missing), or use \"cpu\" for buffers in host memory";

}  // namespace

namespace cuda {

Availability availability() {
    return {.problem = kAbsent};
}

Device device_of(const Context& /*context*/) {
    throw Error(Errc::invalid_argument, kAbsent);
}

void set_device(const Device& /*device*/) {
    throw Error(Errc::invalid_argument, kAbsent);
}

DeviceRuntime& cuda_runtime() {
    throw Error(Errc::invalid_argument, kAbsent);
}

void require_cuda(int /*status*/, std::string_view /*operation*/) {
    throw Error(Errc::invalid_argument, kAbsent);
}

}  // namespace cuda

namespace nccl {

std::unique_ptr<ProcessGroup> form_group(const Context& /*context*/,
                                         const ProcessGroupOptions& /*options*/) {
    throw Error(Errc::invalid_argument, kAbsent);
}

}  // namespace nccl
}  // namespace regroup
