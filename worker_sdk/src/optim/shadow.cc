// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/shadow.h"

#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/optim/cpu_update.h"
#include "worker_sdk/src/optim/memory.h"

namespace regroup::optim {

void write_shadow(const Device& device, const FlatTensors& tensors, Stream stream) {
    if (device.kind == DeviceKind::cpu) {
        write_shadow_on_cpu(tensors);
    } else if (tensors.shadow != nullptr) {
        on_gpu(device, stream, "writing low-precision shadows", [&](auto* handle) {
            return cuda::launch_cast(tensors.master, DType::float32, tensors.shadow,
                                     tensors.shadow_dtype, tensors.count, 1.0F, handle);
        });
    }
}

}  // namespace regroup::optim
