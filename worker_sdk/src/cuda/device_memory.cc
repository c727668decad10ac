// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/device_memory.h"

#include <regroup/cuda.h>
#include <regroup/error.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/cuda/cuda_runtime.h"

namespace regroup::cuda {
namespace {

std::string described(ConstTensorView view) {
    return std::to_string(view.count) + " x " + std::string(to_string(view.dtype)) + " on " +
           to_string(view.device);
}

bool on_gpu(const Device& device) {
    return device.kind == DeviceKind::cuda;
}

void check_exists(DeviceRuntime& runtime, const Device& device, const char* operation) {
    const int count = runtime.device_count();
    if (on_gpu(device) && (device.index < 0 || device.index >= count)) {
        throw Error(Errc::invalid_argument,
                    std::string(operation) + ": there is no " + to_string(device) +
                        "; GPUs that this process can use: " + std::to_string(count));
    }
}

Error no_memory(const Device& device, std::size_t bytes) {
    return {Errc::system, "allocate: no " + std::to_string(bytes) + " bytes of memory left on " +
                              to_string(device)};
}

Buffer allocate_on_host(std::size_t bytes) {
    constexpr std::align_val_t kAlignment{256};
    Buffer buffer{.data = ::operator new(bytes, kAlignment, std::nothrow), .bytes = bytes};
    if (buffer.data == nullptr) {
        throw no_memory(buffer.device, bytes);
    }
    buffer.owner = {buffer.data, [](void* data) { ::operator delete(data, kAlignment); }};
    std::memset(buffer.data, 0, bytes);
    return buffer;
}

void copy_on_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    const bool overlap = from < to + bytes && to < from + bytes;
    if (overlap) {
        std::memmove(to, from, bytes);
    } else {
        copy_bytes(to, from, bytes);
    }
}

}  // namespace

Buffer allocate_on(DeviceRuntime& runtime, const Device& device, std::size_t bytes) {
    check_exists(runtime, device, "allocate");
    const DeviceScope scope(runtime, device.index);
    Buffer buffer{.data = runtime.allocate(bytes), .bytes = bytes, .device = device};
    if (buffer.data == nullptr) {
        throw no_memory(device, bytes);
    }
    buffer.owner = {buffer.data, [&runtime, index = device.index](void* data) {
                        try {
                            const DeviceScope freeing(runtime, index);
                            runtime.free(data);
                        } catch (const Error&) {
                            // The device is lost, and its memory with it.
                        }
                    }};
    runtime.clear(buffer.data, bytes);
    return buffer;
}

void copy_on(DeviceRuntime& runtime, TensorView to, ConstTensorView from, Stream stream) {
    check_exists(runtime, to.device, "copy");
    check_exists(runtime, from.device, "copy");
    const DeviceScope scope(runtime, on_gpu(to.device) ? to.device.index : from.device.index);
    runtime.copy(to.data, from.data, to.bytes(), stream.handle);
    if (!on_gpu(to.device) || !on_gpu(from.device)) {
        runtime.synchronize(stream.handle);
    }
}

Buffer allocate(const Device& device, std::size_t bytes) {
    if (bytes == 0) {
        return {.device = device};
    }
    return on_gpu(device) ? allocate_on(cuda_runtime(), device, bytes) : allocate_on_host(bytes);
}

void copy(TensorView to, ConstTensorView from, Stream stream) {
    if (to.count != from.count || to.dtype != from.dtype) {
        throw Error(Errc::invalid_argument,
                    "copy: " + described(from) + " do not fit " + described(to));
    }
    if (to.count == 0) {
        return;
    }
    if (to.data == nullptr || from.data == nullptr) {
        throw Error(Errc::invalid_argument,
                    "copy: " + described(to.data == nullptr ? to : from) + " without data");
    }
    if (on_gpu(to.device) || on_gpu(from.device)) {
        copy_on(cuda_runtime(), to, from, stream);
    } else {
        copy_on_host(static_cast<std::byte*>(to.data), static_cast<const std::byte*>(from.data),
                     to.bytes());
    }
}

}  // namespace regroup::cuda
