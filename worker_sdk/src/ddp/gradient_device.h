// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <memory>

namespace regroup::ddp {

/// Moves bytes on the device of the gradients, in the order of the caller's stream, and owns the
/// side stream in which reductions run. The host has no streams: everything happens at once.
class GradientDevice {
   public:
    GradientDevice() = default;
    virtual ~GradientDevice() = default;
    GradientDevice(const GradientDevice&) = delete;
    GradientDevice& operator=(const GradientDevice&) = delete;

    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    virtual void set_zero(void* at, std::size_t bytes) = 0;

    /// From and to the host; complete when they return.
    virtual void read(void* host, const void* from, std::size_t bytes) = 0;
    virtual void write(void* to, const void* host, std::size_t bytes) = 0;

    /// Makes later work in the side stream begin after the present work of the caller's stream.
    virtual void fork() = 0;
    /// Makes later work in the caller's stream begin after the present work of the side stream.
    virtual void join() = 0;
    [[nodiscard]] virtual Stream side_stream() const = 0;
    /// Waits until the side stream is empty: the memory that it works on may go then.
    virtual void settle() noexcept = 0;
};

/// For gradients on `device`, computed in `stream`. Throws Error: `invalid_argument` if this build
/// knows no GPUs; `system`.
[[nodiscard]] std::unique_ptr<GradientDevice> make_gradient_device(const Device& device,
                                                                   Stream stream);

/// The one for GPUs; see worker_sdk/src/cuda.
[[nodiscard]] std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& device,
                                                                        Stream stream);

}  // namespace regroup::ddp
