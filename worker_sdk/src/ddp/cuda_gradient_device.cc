// SPDX-License-Identifier: Apache-2.0
// Gradients on a GPU: see gradient_device.h and convert.h.
#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

#include "worker_sdk/src/cuda/cuda_runtime.h"
#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/ddp/convert.h"
#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::ddp {
namespace {

using cuda::DeviceScope;
using cuda::require_cuda;

class SideStream {
   public:
    SideStream() {
        // Highest priority, so that reductions do not wait behind the kernels of the backward pass.
        int least = 0;
        int greatest = 0;
        require_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                     "data parallel: cudaDeviceGetStreamPriorityRange");
        require_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                     "data parallel: cudaStreamCreateWithPriority");
    }
    // CUDA frees the stream when its work is done.
    ~SideStream() { (void)cudaStreamDestroy(stream_); }
    SideStream(const SideStream&) = delete;
    SideStream& operator=(const SideStream&) = delete;

    [[nodiscard]] cudaStream_t get() const { return stream_; }

   private:
    cudaStream_t stream_ = nullptr;
};

class CudaGradientDevice final : public GradientDevice {
   public:
    /// `device` is the current one.
    CudaGradientDevice(cuda::DeviceRuntime& runtime, int device, Stream stream)
        : runtime_(runtime),
          device_(device),
          stream_(stream.handle),
          forked_(runtime),
          joined_(runtime) {}

    void copy(void* to, const void* from, std::size_t bytes) override {
        const DeviceScope scope(runtime_, device_);
        runtime_.copy(to, from, bytes, stream_);
    }
    void set_zero(void* at, std::size_t bytes) override {
        const DeviceScope scope(runtime_, device_);
        require_cuda(cudaMemsetAsync(at, 0, bytes, static_cast<cudaStream_t>(stream_)),
                     "data parallel: cudaMemsetAsync");
    }
    void read(void* host, const void* from, std::size_t bytes) override {
        const DeviceScope scope(runtime_, device_);
        runtime_.copy(host, from, bytes, stream_);
        runtime_.synchronize(stream_);
    }
    void write(void* to, const void* host, std::size_t bytes) override { read(to, host, bytes); }

    void fork() override { order(stream_, forked_, side_.get()); }
    void join() override { order(side_.get(), joined_, stream_); }
    [[nodiscard]] Stream side_stream() const override { return {side_.get()}; }
    // After a failure too: the group has given its kernels up by then.
    void settle() noexcept override { (void)cudaStreamSynchronize(side_.get()); }

   private:
    /// `later` goes on only after what `earlier` holds now. Both may belong to one stream capture.
    void order(void* earlier, const cuda::Event& event, void* later) {
        const DeviceScope scope(runtime_, device_);
        runtime_.record(event.get(), earlier);
        runtime_.wait(later, event.get());
    }

    cuda::DeviceRuntime& runtime_;
    const int device_;
    void* const stream_;
    SideStream side_;
    cuda::Event forked_;
    cuda::Event joined_;
};

}  // namespace

std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& device, Stream stream) {
    cuda::DeviceRuntime& runtime = cuda::cuda_runtime();
    const DeviceScope scope(runtime, device.index);
    return std::make_unique<CudaGradientDevice>(runtime, device.index, stream);
}

void convert_values_on_gpu(ConstTensorView from, TensorView to, float factor, Stream stream) {
    const DeviceScope scope(cuda::cuda_runtime(), from.device.index);
    require_cuda(cuda::launch_cast(from.data, from.dtype, to.data, to.dtype, from.count, factor,
                                   stream.handle),
                 "data parallel: a conversion kernel");
}

}  // namespace regroup::ddp
