// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/cuda_runtime.h"

#include <regroup/error.h>

#include <array>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <optional>
#include <string>
#include <string_view>

#include "worker_sdk/src/cuda/device_count.h"
#include "worker_sdk/src/cuda/environment.h"
#include "worker_sdk/src/cuda/kernels.h"

namespace regroup::cuda {
namespace {

/// Whether the error means that a stream capture does not allow the call.
bool is_capture_error(cudaError_t error) {
    return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
}

void check(cudaError_t error, std::string_view call) {
    if (error == cudaSuccess) {
        return;
    }
    (void)cudaGetLastError();
    std::string detail = std::string(call) + ": " + cudaGetErrorString(error) + " (CUDA error " +
                         std::to_string(static_cast<int>(error)) + ")";
    if (is_capture_error(error)) {
        detail +=
            "; while a CUDA graph is being captured, operations of a group go into the stream "
            "that is captured: call use_stream with it first";
    }
    throw Error(Errc::system, detail);
}

/// A function of the driver, with which this program is not linked; null if there is none.
template <class Function>
Function driver_function(const char* name) {
    constexpr unsigned kVersion = 12000;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
#else
    (void)kVersion;
    const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return nullptr;
    }
    return reinterpret_cast<Function>(function);
}

std::string no_device(cudaError_t error) {
    if (error == cudaErrorNoDevice) {
        return "there is no GPU that this process can use (CUDA_VISIBLE_DEVICES may hide it)";
    }
    return "there is no NVIDIA driver here, or it is older than this program's CUDA " +
           std::to_string(CUDART_VERSION / 1000) + "." +
           std::to_string(CUDART_VERSION % 1000 / 10) +
           " (\"nvidia-smi\" shows both); a container also needs the NVIDIA container toolkit";
}

cudaStream_t stream_of(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

cudaEvent_t event_of(void* event) {
    return static_cast<cudaEvent_t>(event);
}

class CudaRuntime final : public DeviceRuntime {
   public:
    int device_count() override {
        int count = 0;
        const cudaError_t error = cudaGetDeviceCount(&count);
        if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
            (error == cudaSuccess && count == 0)) {
            (void)cudaGetLastError();
            throw Error(Errc::invalid_argument,
                        no_device(error == cudaSuccess ? cudaErrorNoDevice : error));
        }
        check(error, "cudaGetDeviceCount");
        return count;
    }

    int peek_device_count() override {
        const std::optional<int> count = count_without_driver("libnvidia-ml.so.1", CUDART_VERSION,
                                                              Environment::read().visible_devices);
        // The driver knows best why there is none.
        return count.value_or(0) > 0 ? *count : device_count();
    }

    int current_device() override {
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        return device;
    }

    void set_device(int device) override {
        check(cudaSetDevice(device), "cudaSetDevice(" + std::to_string(device) + ")");
    }

    bool has_context(int device) override {
        static const auto device_get = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet");
        static const auto get_state =
            driver_function<decltype(&cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
        CUdevice handle = 0;
        unsigned flags = 0;
        int is_active = 0;
        // A driver that is not initialised returns an error: then there is no context.
        return device_get != nullptr && get_state != nullptr &&
               device_get(&handle, device) == CUDA_SUCCESS &&
               get_state(handle, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
    }

    std::string identity(int device) override {
        std::array<char, 32> address{};
        check(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device),
              "cudaDeviceGetPCIBusId(" + std::to_string(device) + ")");
        return address.data();
    }

    int compute_capability(int device) override {
        int major = 0;
        int minor = 0;
        check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
              "cudaDeviceGetAttribute");
        check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
              "cudaDeviceGetAttribute");
        return major * 10 + minor;
    }

    void stay_out_of_captures() override {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    }

    void* create_stream() override {
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
        return stream;
    }

    void destroy_stream(void* stream) noexcept override {
        (void)cudaStreamDestroy(stream_of(stream));
    }

    bool is_capturing(void* stream) override {
        // The default stream cannot be captured, and asking it would spoil a capture elsewhere.
        if (stream == nullptr || stream_of(stream) == cudaStreamLegacy) {
            return false;
        }
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        check(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
        return status != cudaStreamCaptureStatusNone;
    }

    void* create_event() override {
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        return event;
    }

    void destroy_event(void* event) noexcept override { (void)cudaEventDestroy(event_of(event)); }

    void record(void* event, void* stream) override {
        check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
    }

    void wait(void* stream, void* event) override {
        check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
    }

    bool has_passed(void* event) override {
        const cudaError_t error = cudaEventQuery(event_of(event));
        if (error == cudaErrorNotReady) {
            (void)cudaGetLastError();
            return false;
        }
        check(error, "cudaEventQuery");
        return true;
    }

    void* allocate(std::size_t bytes) override {
        void* memory = nullptr;
        const cudaError_t error = cudaMalloc(&memory, bytes);
        if (error == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            return nullptr;
        }
        check(error, "cudaMalloc(" + std::to_string(bytes) + ")");
        return memory;
    }

    void free(void* memory) noexcept override { (void)cudaFree(memory); }

    void clear(void* memory, std::size_t bytes) override {
        check(cudaMemset(memory, 0, bytes), "cudaMemset");
        // Not the whole device, where an operation may be waiting for a peer.
        synchronize(nullptr);
    }

    void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
        // Addresses are unique over all GPUs and the host, and say where they belong.
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)),
              "cudaMemcpyAsync");
    }

    void scale_float8(void* to, const void* from, DType dtype, std::size_t count, float factor,
                      void* stream) override {
        require_cuda(launch_scale_float8(from, to, dtype, count, factor, stream),
                     "scaling " + std::string(to_string(dtype)));
    }

    void synchronize(void* stream) override {
        check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
    }
};

}  // namespace

DeviceRuntime& cuda_runtime() {
    static CudaRuntime runtime;
    return runtime;
}

void require_cuda(int status, std::string_view operation) {
    check(static_cast<cudaError_t>(status), operation);
}

}  // namespace regroup::cuda
