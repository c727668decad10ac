// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>

#include "worker_sdk/src/cuda/cuda_runtime.h"

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

/// Calls `launch(stream)`, which returns a cudaError_t as a number, with `device` as the current
/// GPU. Throws Error `system` naming `operation` if that fails.
template <class Launch>
void on_gpu(const Device& device, Stream stream, const char* operation, const Launch& launch) {
    const cuda::DeviceScope scope(cuda::cuda_runtime(), device.index);
    cuda::require_cuda(launch(stream.handle), operation);
}

}  // namespace regroup::optim
