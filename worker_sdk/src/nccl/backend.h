// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/cuda/device_runtime.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {

/// The NCCL and CUDA libraries of this process.
struct Backend {
    const NcclApi& api;
    cuda::DeviceRuntime& runtime;
    /// How long the destructor of a group or of its memory waits until the resources are freed.
    Duration freeing_max = std::chrono::seconds(10);
    /// Whether calls of NCCL may wait for other ranks. See Communicator.
    bool blocking = false;
};

}  // namespace regroup::nccl
