// SPDX-License-Identifier: Apache-2.0
// The back end "nccl" in a build without GPU support.
#include "worker_sdk/src/cuda/absent.h"

#include <regroup/cuda.h>
#include <regroup/error.h>

#include "worker_sdk/src/nccl/form_group.h"

namespace regroup {
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

}  // namespace cuda

namespace nccl {

std::unique_ptr<ProcessGroup> form_group(const Context& /*context*/,
                                         const ProcessGroupOptions& /*options*/) {
    throw Error(Errc::invalid_argument, cuda::kAbsent);
}

}  // namespace nccl
}  // namespace regroup
