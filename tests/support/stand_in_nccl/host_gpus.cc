// SPDX-License-Identifier: Apache-2.0
// A program that links this file uses host memory in place of GPUs.
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"

namespace regroup::cuda {

DeviceRuntime& cuda_runtime() {
    static testing::HostRuntime runtime;
    return runtime;
}

}  // namespace regroup::cuda
