// SPDX-License-Identifier: Apache-2.0
// Gradients on a GPU: see gradient_device.h and convert.h.
#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/training/convert.h"
#include "worker_sdk/src/training/gradient_device.h"

namespace regroup::training {
namespace {

void check(const char* call, cudaError_t result) {
    if (result != cudaSuccess) {
        throw Error(Errc::system, std::string("data parallel: ") + call + ": " +
                                      cudaGetErrorString(result));
    }
}

cudaStream_t handle_of(Stream stream) {
    return static_cast<cudaStream_t>(stream.handle);
}

/// Makes a device the current one of this thread for a while.
class DeviceScope {
   public:
    explicit DeviceScope(int device) : device_(device) {
        check("cudaGetDevice", cudaGetDevice(&before_));
        if (before_ != device_) {
            check("cudaSetDevice", cudaSetDevice(device_));
        }
    }
    ~DeviceScope() {
        if (before_ != device_) {
            (void)cudaSetDevice(before_);
        }
    }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

   private:
    const int device_;
    int before_ = 0;
};

class Event {
   public:
    Event() { check("cudaEventCreate", cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
    ~Event() { (void)cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// `later` goes on only after what `earlier` holds now. Both may belong to one stream capture.
    void order(cudaStream_t earlier, cudaStream_t later) {
        check("cudaEventRecord", cudaEventRecord(event_, earlier));
        check("cudaStreamWaitEvent", cudaStreamWaitEvent(later, event_, 0));
    }

   private:
    cudaEvent_t event_ = nullptr;
};

class SideStream {
   public:
    SideStream() {
        // Ahead of the kernels of the backward pass, of which there are always more.
        int least = 0;
        int greatest = 0;
        check("cudaDeviceGetStreamPriorityRange",
              cudaDeviceGetStreamPriorityRange(&least, &greatest));
        check("cudaStreamCreate",
              cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    }
    // What is in it goes on; CUDA frees it afterwards.
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
    CudaGradientDevice(int device, Stream stream) : device_(device), stream_(handle_of(stream)) {}

    void copy(void* to, const void* from, std::size_t bytes) override {
        const DeviceScope scope(device_);
        check("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
    }
    void set_zero(void* at, std::size_t bytes) override {
        const DeviceScope scope(device_);
        check("cudaMemsetAsync", cudaMemsetAsync(at, 0, bytes, stream_));
    }
    void read(void* host, const void* from, std::size_t bytes) override {
        const DeviceScope scope(device_);
        check("cudaMemcpyAsync", cudaMemcpyAsync(host, from, bytes, cudaMemcpyDefault, stream_));
        check("cudaStreamSynchronize", cudaStreamSynchronize(stream_));
    }
    void write(void* to, const void* host, std::size_t bytes) override { read(to, host, bytes); }

    void fork() override {
        const DeviceScope scope(device_);
        forked_.order(stream_, side_.get());
    }
    void join() override {
        const DeviceScope scope(device_);
        joined_.order(side_.get(), stream_);
    }
    [[nodiscard]] Stream side_stream() const override { return {side_.get()}; }
    // After a failure too: the group has given its kernels up by then.
    void settle() noexcept override { (void)cudaStreamSynchronize(side_.get()); }

   private:
    const int device_;
    const cudaStream_t stream_;
    SideStream side_;
    Event forked_;
    Event joined_;
};

// ---------------------------------------------------------------------------------------------------
// Conversions. A thread takes as many values at a time as make one load of 16 bytes.

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksMax = 1024;
constexpr std::size_t kPackCount = 4;

template <class T>
struct alignas(kPackCount * sizeof(T)) Pack {
    T values[kPackCount];
};

template <class Wide>
__device__ __half narrow(Wide value, __half /*type*/) {
    return __float2half_rn(static_cast<float>(value));
}
template <class Wide>
__device__ __nv_bfloat16 narrow(Wide value, __nv_bfloat16 /*type*/) {
    return __float2bfloat16_rn(static_cast<float>(value));
}
__device__ float widen(__half value) {
    return __half2float(value);
}
__device__ float widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

template <class Wide, class Low>
__global__ void narrow_all(const Pack<Wide>* from, Pack<Low>* to, std::size_t packs, Wide factor) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs;
         i += stride) {
        const Pack<Wide> wide = from[i];
        Pack<Low> low;
        for (std::size_t k = 0; k < kPackCount; ++k) {
            low.values[k] = narrow(wide.values[k] * factor, Low());
        }
        to[i] = low;
    }
}

template <class Low, class Wide>
__global__ void widen_all(const Pack<Low>* from, Pack<Wide>* to, std::size_t packs, Wide factor) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs;
         i += stride) {
        const Pack<Low> low = from[i];
        Pack<Wide> wide;
        for (std::size_t k = 0; k < kPackCount; ++k) {
            wide.values[k] = static_cast<Wide>(widen(low.values[k])) * factor;
        }
        to[i] = wide;
    }
}

template <class Wide, class Low>
void launch(ConstTensorView from, TensorView to, float factor, cudaStream_t stream) {
    // Buckets are padded to 64 bytes, so that nothing is left over.
    const std::size_t packs = from.count / kPackCount;
    ENSURE(packs * kPackCount == from.count);
    if (packs == 0) {
        return;
    }
    const auto blocks =
        static_cast<unsigned>(std::min<std::size_t>((packs + kThreads - 1) / kThreads, kBlocksMax));
    if (item_bytes(from.dtype) == sizeof(Wide)) {
        narrow_all<Wide, Low><<<blocks, kThreads, 0, stream>>>(
            static_cast<const Pack<Wide>*>(from.data), static_cast<Pack<Low>*>(to.data), packs,
            static_cast<Wide>(factor));
    } else {
        widen_all<Low, Wide><<<blocks, kThreads, 0, stream>>>(
            static_cast<const Pack<Low>*>(from.data), static_cast<Pack<Wide>*>(to.data), packs,
            static_cast<Wide>(factor));
    }
    check("a conversion kernel", cudaGetLastError());
}

}  // namespace

std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& device, Stream stream) {
    const DeviceScope scope(device.index);
    return std::make_unique<CudaGradientDevice>(device.index, stream);
}

void convert_values_on_gpu(ConstTensorView from, TensorView to, float factor, Stream stream) {
    const DeviceScope scope(from.device.index);
    const bool narrows = item_bytes(from.dtype) > item_bytes(to.dtype);
    const DType wide = narrows ? from.dtype : to.dtype;
    const DType low = narrows ? to.dtype : from.dtype;
    if (wide == DType::float32) {
        low == DType::bfloat16 ? launch<float, __nv_bfloat16>(from, to, factor, handle_of(stream))
                               : launch<float, __half>(from, to, factor, handle_of(stream));
    } else {
        ENSURE(wide == DType::float64);
        low == DType::bfloat16 ? launch<double, __nv_bfloat16>(from, to, factor, handle_of(stream))
                               : launch<double, __half>(from, to, factor, handle_of(stream));
    }
}

}  // namespace regroup::training
