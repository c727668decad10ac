// SPDX-License-Identifier: Apache-2.0
// The GPU functions of a build without CUDA.
#include "worker_sdk/src/cuda/absent.h"

#include <regroup/error.h>

#include <string_view>

#include "worker_sdk/src/cuda/cuda_runtime.h"

namespace regroup::cuda {

DeviceRuntime& cuda_runtime() {
    throw Error(Errc::invalid_argument, kAbsent);
}

void require_cuda(int /*status*/, std::string_view /*operation*/) {
    throw Error(Errc::invalid_argument, kAbsent);
}

}  // namespace regroup::cuda
