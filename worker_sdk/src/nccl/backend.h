// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/cuda/device_runtime.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {

/// NCCL and CUDA, as this process found them.
struct Backend {
    const NcclApi& api;
    cuda::DeviceRuntime& runtime;
    /// How long whoever lets go of a group or its memory waits for what that frees.
    Duration freeing_max = std::chrono::seconds(10);
};

}  // namespace regroup::nccl
