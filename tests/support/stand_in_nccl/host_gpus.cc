// SPDX-License-Identifier: Apache-2.0
// Linked into a program, GPUs that are host memory take the place of the machine's.
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"

namespace regroup::cuda {

DeviceRuntime& cuda_runtime() {
    static testing::HostRuntime runtime;
    return runtime;
}

}  // namespace regroup::cuda
