// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/memory.h"

#include <regroup/error.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#if defined(REGROUP_HAVE_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace regroup::optim {
namespace {

constexpr std::size_t kAlignment = 64;

void* allocate_on_cpu(std::size_t bytes) {
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
        throw Error(Errc::system, "allocating " + std::to_string(bytes) +
                                      " bytes for an optimizer: " + std::strerror(errno));
    }
    return std::memset(data, 0, rounded);
}

}  // namespace

#if defined(REGROUP_HAVE_CUDA)

void require_cuda(int status, const char* operation) {
    if (status != 0) {
        const auto error = static_cast<cudaError_t>(status);
        throw Error(Errc::system, std::string(operation) + ": " + ::cudaGetErrorName(error) + ", " +
                                      ::cudaGetErrorString(error));
    }
}

CurrentDevice::CurrentDevice(const Device& device) {
    int current = 0;
    require_cuda(::cudaGetDevice(&current), "looking for the current GPU (cudaGetDevice)");
    if (current != device.index) {
        require_cuda(::cudaSetDevice(device.index), "choosing a GPU (cudaSetDevice)");
        before_ = current;
    }
}

CurrentDevice::~CurrentDevice() {
    if (before_ >= 0) {
        ::cudaSetDevice(before_);
    }
}

namespace {

void* allocate_on_gpu(const Device& device, std::size_t bytes) {
    const CurrentDevice current(device);
    void* data = nullptr;
    const std::string operation = "allocating " + std::to_string(bytes) +
                                  " bytes for an optimizer on " + to_string(device) +
                                  " (cudaMalloc)";
    require_cuda(::cudaMalloc(&data, bytes), operation.c_str());
    const cudaError_t cleared = ::cudaMemset(data, 0, bytes);
    // A stream that does not wait for the default one must not overtake the zeros.
    const cudaError_t done = cleared == cudaSuccess ? ::cudaDeviceSynchronize() : cleared;
    if (done != cudaSuccess) {
        ::cudaFree(data);
        require_cuda(done, "clearing GPU memory (cudaMemset)");
    }
    return data;
}

void free_on_gpu(const Device& /*device*/, void* data) noexcept {
    ::cudaFree(data);  // Knows its GPU; waits for the work that may still use it.
}

void copy_on_gpu(const Device& device, void* to, const void* from, std::size_t bytes,
                 Stream stream) {
    const CurrentDevice current(device);
    auto* const handle = static_cast<cudaStream_t>(stream.handle);
    require_cuda(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle),
                 "copying an optimizer's state (cudaMemcpyAsync)");
    require_cuda(::cudaStreamSynchronize(handle),
                 "copying an optimizer's state (cudaStreamSynchronize)");
}

}  // namespace

#else

void require_cuda(int status, const char* /*operation*/) {
    ENSURE(status == 0);
}
CurrentDevice::CurrentDevice(const Device& /*device*/) {}
CurrentDevice::~CurrentDevice() = default;

namespace {

void* allocate_on_gpu(const Device& device, std::size_t /*bytes*/) {
    throw Error(Errc::invalid_argument,
                "tensors on " + to_string(device) +
                    ": this build of regroup has no GPU code; build it where the CUDA toolkit is, "
                    "with REGROUP_CUDA=ON");
}
void free_on_gpu(const Device& /*device*/, void* /*data*/) noexcept {}
void copy_on_gpu(const Device& /*device*/, void* /*to*/, const void* /*from*/,
                 std::size_t /*bytes*/, Stream /*stream*/) {
    ENSURE(kHaveCuda);
}

}  // namespace

#endif

void Memory::Free::operator()(void* data) const noexcept {
    if (device.kind == DeviceKind::cpu) {
        std::free(data);
    } else {
        free_on_gpu(device, data);
    }
}

Memory::Memory(const Device& device, std::size_t bytes)
    : device_(device),
      bytes_(bytes),
      data_(
          device.kind == DeviceKind::cpu ? allocate_on_cpu(bytes) : allocate_on_gpu(device, bytes),
          Free{device}) {}

void Memory::read(void* host, std::size_t offset, std::size_t count_bytes, Stream stream) const {
    ENSURE(offset <= bytes_ && count_bytes <= bytes_ - offset);
    const auto* const from = static_cast<const std::byte*>(data_.get()) + offset;
    if (device_.kind == DeviceKind::cpu) {
        std::memcpy(host, from, count_bytes);
    } else {
        copy_on_gpu(device_, host, from, count_bytes, stream);
    }
}

void Memory::write(const void* host, std::size_t offset, std::size_t count_bytes, Stream stream) {
    ENSURE(offset <= bytes_ && count_bytes <= bytes_ - offset);
    auto* const to = static_cast<std::byte*>(data_.get()) + offset;
    if (device_.kind == DeviceKind::cpu) {
        std::memcpy(to, host, count_bytes);
    } else {
        copy_on_gpu(device_, to, host, count_bytes, stream);
    }
}

}  // namespace regroup::optim
