// SPDX-License-Identifier: Apache-2.0
// Shared parts of streaming kernels: wide loads and stores, conversion, and launching.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace regroup::cuda {

/// Elements that a thread takes at once: 16 bytes of float.
inline constexpr int kLanes = 4;
inline constexpr unsigned kBlockThreads = 256;
/// Kernels may have 32 KB of arguments instead of 4: the drivers that CUDA 13 needs can do it.
inline constexpr bool kHasLargeArguments = CUDART_VERSION >= 13000;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ __forceinline__ T rounded_to(float value) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return value;
    } else if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(value);
    } else {
        return __float2bfloat16_rn(value);
    }
}

/// `count` elements of memory as one load or store.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
    T values[count];
};

template <int count, class T>
__device__ __forceinline__ void load(const T* from, std::size_t index, float (&into)[count]) {
    const auto pack = reinterpret_cast<const Pack<T, count>*>(from)[index];
#pragma unroll
    for (int i = 0; i < count; ++i) {
        into[i] = to_float(pack.values[i]);
    }
}

template <int count, class T>
__device__ __forceinline__ void store(T* to, std::size_t index, const float (&from)[count]) {
    Pack<T, count> pack;
#pragma unroll
    for (int i = 0; i < count; ++i) {
        pack.values[i] = rounded_to<T>(from[i]);
    }
    reinterpret_cast<Pack<T, count>*>(to)[index] = pack;
}

/// Whether packs of so many elements may be used there.
template <int count = kLanes, class T>
__host__ __device__ bool is_aligned(const T* data) {
    return reinterpret_cast<std::uintptr_t>(data) % (sizeof(T) * count) == 0;
}

/// Launches `kernel` with so many blocks, or as many as fill the GPU a few times; each block strides
/// over the rest. Nothing for no blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch_blocks(void (*kernel)(Parameters...), std::size_t blocks, void* stream,
                          Arguments&&... arguments) {
    if (blocks == 0) {
        return cudaSuccess;
    }
    int device = 0;
    int processors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status != cudaSuccess) {
        return status;
    }
    const std::size_t blocks_max = static_cast<std::size_t>(processors) * 16;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks < blocks_max ? blocks : blocks_max));
    config.blockDim = dim3(kBlockThreads);
    config.stream = static_cast<cudaStream_t>(stream);
    return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/// The same with enough threads for `items`.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), std::size_t items, void* stream,
                   Arguments&&... arguments) {
    return launch_blocks(kernel, (items + kBlockThreads - 1) / kBlockThreads, stream,
                         std::forward<Arguments>(arguments)...);
}

/// Launches `kernel` with one thread.
template <class... Parameters, class... Arguments>
cudaError_t launch_one(void (*kernel)(Parameters...), void* stream, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(1);
    config.stream = static_cast<cudaStream_t>(stream);
    return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

__device__ __forceinline__ std::size_t thread_index() {
    return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::size_t thread_count() {
    return std::size_t{gridDim.x} * blockDim.x;
}

}  // namespace regroup::cuda
