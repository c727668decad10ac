// SPDX-License-Identifier: Apache-2.0
// GPU availability in a build with GPU support.
#include <regroup/cuda.h>
#include <regroup/error.h>

#include <string>

#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/cuda/device_choice.h"
#include "worker_sdk/src/cuda/environment.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::cuda {

Availability availability() {
    Availability found{.built_in = true};
    try {
        found.device_count = cuda_runtime().peek_device_count();
    } catch (const Error& error) {
        found.problem = error.what();
    }
    try {
        found.nccl_version = nccl::installed_api().version;
    } catch (const Error& error) {
        found.problem += (found.problem.empty() ? "" : "; ") + std::string(error.what());
    }
    return found;
}

Device device_of(const Context& context) {
    const Environment environment = Environment::read();
    const std::int32_t index = choose_device({.local_rank = context.local_rank,
                                              .local_world_size = context.local_world_size,
                                              .device_count = cuda_runtime().peek_device_count(),
                                              .visible = environment.visible_devices,
                                              .share = environment.share_gpus});
    return {DeviceKind::cuda, index};
}

void set_device(const Device& device) {
    if (device.kind != DeviceKind::cuda) {
        throw Error(Errc::invalid_argument, "set_device: " + to_string(device) + " is no GPU");
    }
    cuda_runtime().set_device(device.index);
}

}  // namespace regroup::cuda
