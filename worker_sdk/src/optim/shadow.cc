// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/shadow.h"

#include "worker_sdk/src/optim/cpu_update.h"
#include "worker_sdk/src/optim/kernels.h"
#include "worker_sdk/src/optim/memory.h"

namespace regroup::optim {

void write_shadows(const Device& device, std::span<const FlatTensors> tensors, Stream stream) {
    if (device.kind == DeviceKind::cpu) {
        for (const FlatTensors& each : tensors) {
            write_shadow_on_cpu(each);
        }
        return;
    }
    on_gpu(device, stream, "writing low-precision shadows",
           [&](auto* handle) { return launch_write_shadows(tensors, handle); });
}

}  // namespace regroup::optim
