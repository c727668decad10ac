// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <type_traits>
#include <vector>

#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/gpu_kernels.h"
#include "worker_sdk/src/optim/tensor_batch.h"

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

struct Values {
    void* values;
    std::size_t count;
    std::size_t first_sum;
};

// A block of threads for each chunk, a thread for each lane: the order of squares.h.
template <class T, class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    sum_squares_kernel(const __grid_constant__ Batch batch, double* __restrict__ sums) {
    __shared__ double lanes[kSquaresLanes];
    constexpr unsigned kRows = kSquaresChunk / kSquaresLanes;
    const std::size_t lane = threadIdx.x;
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensor, part] = batch.place_of(chunk);
        const auto* const values = static_cast<const T*>(tensor.values);
        T loaded[kRows];  // All loads are in flight before the first is used.
#pragma unroll
        for (unsigned row = 0; row < kRows; ++row) {
            const std::size_t i = part * kSquaresChunk + std::size_t{row} * kSquaresLanes + lane;
            loaded[row] = i < tensor.count ? values[i] : T(0.0F);
        }
        double sum = 0.0;
#pragma unroll
        for (unsigned row = 0; row < kRows; ++row) {
            const double value = to_double(loaded[row]);
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
            sums[tensor.first_sum + part] = lanes[0];
        }
        __syncthreads();  // Before the next chunk replaces the lanes.
    }
}

constexpr std::size_t kScaleChunk = 4096;

template <class T, class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    scale_kernel(const __grid_constant__ Batch batch, double factor) {
    constexpr int kWide = 16 / static_cast<int>(sizeof(T));
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensor, part] = batch.place_of(chunk);
        auto* const values = static_cast<T*>(tensor.values) + part * kScaleChunk;
        const std::size_t count = min(tensor.count - part * kScaleChunk, kScaleChunk);
        if constexpr (std::is_same_v<T, double>) {
            for (std::size_t i = threadIdx.x; i < count; i += kBlockThreads) {
                values[i] *= factor;
            }
        } else {
            const auto narrow = static_cast<float>(factor);
            const std::size_t packs = cuda::is_aligned<kWide>(values) ? count / kWide : 0;
            for (std::size_t i = threadIdx.x; i < packs; i += kBlockThreads) {
                float lanes[kWide];
                cuda::load(values, i, lanes);
#pragma unroll
                for (int lane = 0; lane < kWide; ++lane) {
                    lanes[lane] *= narrow;
                }
                cuda::store(values, i, lanes);
            }
            for (std::size_t i = packs * kWide + threadIdx.x; i < count; i += kBlockThreads) {
                values[i] = cuda::rounded_to<T>(cuda::to_float(values[i]) * narrow);
            }
        }
    }
}

constexpr std::array kDTypes{DType::float64, DType::float32, DType::float16, DType::bfloat16};

/// Calls `action` with a null pointer to the type of `dtype`.
template <class Action>
int for_type(DType dtype, const Action& action) {
    switch (dtype) {
        case DType::float64:
            return action(static_cast<double*>(nullptr));
        case DType::float32:
            return action(static_cast<float*>(nullptr));
        case DType::float16:
            return action(static_cast<__half*>(nullptr));
        default:
            return action(static_cast<__nv_bfloat16*>(nullptr));
    }
}

/// Calls `launch` with a pointer of the dtype and a batch of tensors of this dtype, until all
/// tensors have been in one.
template <class Launch>
int for_batches(std::span<const TensorView> tensors, std::size_t chunk, const Launch& launch) {
    for (const DType dtype : kDTypes) {
        std::vector<Values> chosen;
        std::size_t first_sum = 0;
        for (const TensorView& tensor : tensors) {
            if (tensor.dtype == dtype) {
                chosen.push_back({tensor.data, tensor.count, first_sum});
            }
            first_sum += (tensor.count + kSquaresChunk - 1) / kSquaresChunk;
        }
        const int status = for_type(dtype, [&](auto* typed) {
            return launch_in_batches<cuda::kHasLargeArguments>(
                std::span<const Values>(chosen), chunk,
                [&](const auto& batch) -> int { return launch(typed, batch); });
        });
        if (status != cudaSuccess) {
            return status;
        }
    }
    return cudaSuccess;
}

}  // namespace

int GpuKernels::sum_squares(std::span<const TensorView> tensors, double* sums, void* stream) const {
    return for_batches(tensors, kSquaresChunk, [&](auto* typed, const auto& batch) -> int {
        using T = std::remove_pointer_t<decltype(typed)>;
        return cuda::launch_blocks(sum_squares_kernel<T, std::remove_cvref_t<decltype(batch)>>,
                                   batch.chunk_count(), stream, batch, sums);
    });
}

int GpuKernels::scale(std::span<const TensorView> tensors, double factor, void* stream) const {
    return for_batches(tensors, kScaleChunk, [&](auto* typed, const auto& batch) -> int {
        using T = std::remove_pointer_t<decltype(typed)>;
        return cuda::launch_blocks(scale_kernel<T, std::remove_cvref_t<decltype(batch)>>,
                                   batch.chunk_count(), stream, batch, factor);
    });
}

}  // namespace regroup::optim
