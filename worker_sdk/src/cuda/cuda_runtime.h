// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/src/cuda/device_runtime.h"

namespace regroup::cuda {

/// The CUDA runtime of this process.
[[nodiscard]] DeviceRuntime& cuda_runtime();

}  // namespace regroup::cuda
