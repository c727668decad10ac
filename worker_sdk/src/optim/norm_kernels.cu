// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {
namespace {

using cuda::kBlockThreads;

static_assert(kSquaresLanes == kBlockThreads);

__device__ __forceinline__ double to_double(double value) {
    return value;
}
template <class T>
__device__ __forceinline__ double to_double(T value) {
    return static_cast<double>(cuda::to_float(value));
}

// A block of threads for each chunk, a thread for each lane: the order of sum_squares_on_cpu.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    sum_squares_kernel(const T* __restrict__ values, std::size_t count, double* __restrict__ sums,
                       std::size_t chunks) {
    __shared__ double lanes[kSquaresLanes];
    const std::size_t lane = threadIdx.x;
    for (std::size_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        double sum = 0.0;
        for (std::size_t row = 0; row < kSquaresChunk; row += kSquaresLanes) {
            const std::size_t i = chunk * kSquaresChunk + row + lane;
            const double value = i < count ? to_double(values[i]) : 0.0;
            sum += value * value;
        }
        lanes[lane] = sum;
        __syncthreads();
        for (std::size_t width = kSquaresLanes / 2; width > 0; width /= 2) {
            if (lane < width) {
                lanes[lane] += lanes[lane + width];
            }
            __syncthreads();
        }
        if (lane == 0) {
            sums[chunk] = lanes[0];
        }
        __syncthreads();  // Before the next chunk replaces the lanes.
    }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    scale_kernel(T* values, std::size_t count, double factor) {
    for (std::size_t i = cuda::thread_index(); i < count; i += cuda::thread_count()) {
        if constexpr (std::is_same_v<T, double>) {
            values[i] *= factor;
        } else {
            values[i] = cuda::rounded_to<T>(cuda::to_float(values[i]) * static_cast<float>(factor));
        }
    }
}

/// Calls `action` with a typed pointer to `values`.
template <class Action>
int for_type(DType dtype, void* values, const Action& action) {
    switch (dtype) {
        case DType::float64:
            return action(static_cast<double*>(values));
        case DType::float32:
            return action(static_cast<float*>(values));
        case DType::float16:
            return action(static_cast<__half*>(values));
        case DType::bfloat16:
            return action(static_cast<__nv_bfloat16*>(values));
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace

int launch_sum_squares(void* values, DType dtype, std::size_t count, double* sums, void* stream) {
    const std::size_t chunks = (count + kSquaresChunk - 1) / kSquaresChunk;
    return for_type(dtype, values, [&](auto* typed) -> int {
        using T = std::remove_pointer_t<decltype(typed)>;
        return cuda::launch(sum_squares_kernel<T>, chunks * kSquaresLanes, stream, typed, count,
                            sums, chunks);
    });
}

int launch_scale(void* values, DType dtype, std::size_t count, double factor, void* stream) {
    return for_type(dtype, values, [&](auto* typed) -> int {
        using T = std::remove_pointer_t<decltype(typed)>;
        return cuda::launch(scale_kernel<T>, count, stream, typed, count, factor);
    });
}

}  // namespace regroup::optim
