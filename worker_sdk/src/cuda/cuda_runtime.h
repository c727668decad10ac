// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "worker_sdk/src/cuda/device_runtime.h"

namespace regroup::cuda {

/// The CUDA runtime of this process.
[[nodiscard]] DeviceRuntime& cuda_runtime();

/// Throws Error `system` naming `operation` unless `status`, a cudaError_t, is 0. It also clears
/// the error in CUDA, so that the user's next check does not find it.
void require_cuda(int status, std::string_view operation);

}  // namespace regroup::cuda
