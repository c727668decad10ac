// SPDX-License-Identifier: Apache-2.0
// The GPU functions of a build without CUDA.
#include <regroup/error.h>

#include "worker_sdk/src/cuda/absent.h"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {

const Kernels& gpu_kernels() {
    throw Error(Errc::invalid_argument, cuda::kAbsent);
}

}  // namespace regroup::optim
