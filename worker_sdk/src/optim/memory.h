// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <memory>

#include "rendezvous/base/ensure.h"

namespace regroup::optim {

#if defined(REGROUP_HAVE_CUDA)
inline constexpr bool kHaveCuda = true;
#else
inline constexpr bool kHaveCuda = false;
#endif

/// Throws Error `system` naming `operation` unless `status`, a cudaError_t, is 0.
void require_cuda(int status, const char* operation);

/// Makes a GPU the current one of this thread, and then the one that was.
class CurrentDevice {
   public:
    explicit CurrentDevice(const Device& device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

   private:
    [[maybe_unused]] int before_ = -1;  // not used in a build without CUDA
};

/// Zeroed memory on the CPU or on a GPU.
class Memory {
   public:
    /// Throws Error `system` if there is not enough of it, `invalid_argument` for a GPU in a build
    /// without CUDA.
    Memory(const Device& device, std::size_t bytes);

    [[nodiscard]] void* data() const noexcept { return data_.get(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    // Between here and the host, after what `stream` holds; complete on return.
    void read(void* host, std::size_t offset, std::size_t count_bytes, Stream stream) const;
    void write(const void* host, std::size_t offset, std::size_t count_bytes, Stream stream);

   private:
    struct Free {
        Device device{};
        void operator()(void* data) const noexcept;
    };

    Device device_;
    std::size_t bytes_;
    std::unique_ptr<void, Free> data_;
};

/// Calls `launch(stream)` with `device` as the current GPU. `launch` is a generic lambda: a build
/// without CUDA, where no buffer can be on a GPU, does not instantiate it and needs no kernels.
template <class Launch>
void on_gpu(const Device& device, Stream stream, const char* operation, const Launch& launch) {
    if constexpr (kHaveCuda) {
        const CurrentDevice current(device);
        require_cuda(launch(stream.handle), operation);
    } else {
        ENSURE(device.kind == DeviceKind::cpu);
    }
}

}  // namespace regroup::optim
