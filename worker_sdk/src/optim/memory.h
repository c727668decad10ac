// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>

#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {

/// Zeroed memory on the CPU or on a GPU.
class Memory {
   public:
    /// Throws Error `system` if there is not enough of it, `invalid_argument` for a GPU in a build
    /// without CUDA.
    Memory(const Device& device, std::size_t bytes);

    [[nodiscard]] void* data() const noexcept { return buffer_.data; }
    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes; }

    // Between here and the host, after what `stream` holds; complete on return.
    void read(void* host, std::size_t offset, std::size_t count_bytes, Stream stream) const;
    void write(const void* host, std::size_t offset, std::size_t count_bytes, Stream stream);

   private:
    Buffer buffer_;
};

/// Calls `call(kernels, stream)` with the kernels of `device`, which becomes the current GPU if it
/// is one. Throws Error `system` naming `operation` if that fails.
template <class Call>
void run_kernels(const Device& device, Stream stream, const char* operation, const Call& call) {
    if (device.kind == DeviceKind::cpu) {
        static_cast<void>(call(cpu_kernels(), nullptr));
        return;
    }
    const cuda::DeviceScope scope(cuda::cuda_runtime(), device.index);
    cuda::require_cuda(call(gpu_kernels(), stream.handle), operation);
}

/// Rounds the masters into their shadows, where there are any.
inline void write_shadows(const Device& device, std::span<const FlatTensors> tensors,
                          Stream stream) {
    run_kernels(device, stream, "writing low-precision shadows",
                [&](const Kernels& kernels, void* handle) {
                    return kernels.write_shadows(tensors, handle);
                });
}

}  // namespace regroup::optim
