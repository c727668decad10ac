// SPDX-License-Identifier: Apache-2.0
#include <type_traits>
#include <vector>

#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/gpu_kernels.h"
#include "worker_sdk/src/optim/tensor_batch.h"

namespace regroup::optim {
namespace {

using cuda::kBlockThreads;
using cuda::kLanes;

__global__ void update_scale_kernel(ScalerState* state, ScalerRule rule) {
    update_scale(*state, rule);
}

__global__ void report_overflow_kernel(ScalerState* state) {
    state->overflow = 1.0F;
}

// The exponents of inf and NaN are all ones. `ones` holds them for one element, or for both that
// share a 32-bit word.
struct Exponents {
    unsigned low;
    unsigned high;

    __device__ bool in(unsigned word) const { return (word & low) == low || (word & high) == high; }
};

Exponents exponents_of(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return {0x7c00U, 0x7c000000U};
        case DType::bfloat16:
            return {0x7f80U, 0x7f800000U};
        default:
            return {0x7f800000U, 0x7f800000U};
    }
}

/// Bytes of one tensor.
struct Bytes {
    const unsigned char* data;
    std::size_t count;
};

// A chunk is four words of 16 bytes for each thread, all in flight.
constexpr unsigned kInFlight = 4;
constexpr std::size_t kCheckChunk = kInFlight * kBlockThreads * sizeof(uint4);

/// The ends of a tensor, and one that is not aligned, are checked element by element, in
/// `Element`s.
template <class Element, class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    check_kernel(const __grid_constant__ Batch batch, Exponents exponents, ScalerState* state) {
    bool found = false;
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensor, part] = batch.place_of(chunk);
        const std::size_t begin = part * kCheckChunk;
        const std::size_t bytes = min(tensor.count - begin, kCheckChunk);
        const auto* const wide = reinterpret_cast<const uint4*>(tensor.data + begin);
        const std::size_t words = cuda::is_aligned<1>(wide) ? bytes / sizeof(uint4) : 0;
        uint4 word[kInFlight];
#pragma unroll
        for (unsigned i = 0; i < kInFlight; ++i) {
            const std::size_t at = threadIdx.x + std::size_t{i} * kBlockThreads;
            word[i] = at < words ? wide[at] : uint4{};
        }
#pragma unroll
        for (unsigned i = 0; i < kInFlight; ++i) {
            found = found || exponents.in(word[i].x) || exponents.in(word[i].y) ||
                    exponents.in(word[i].z) || exponents.in(word[i].w);
        }
        const auto* const elements = reinterpret_cast<const Element*>(tensor.data + begin);
        for (std::size_t i = words * sizeof(uint4) / sizeof(Element) + threadIdx.x;
             i < bytes / sizeof(Element); i += kBlockThreads) {
            found = found || (elements[i] & exponents.low) == exponents.low;
        }
    }
    if (found) {
        state->overflow = 1.0F;  // All threads write the same value.
    }
}

struct Floats {
    float* values;
    std::size_t count;
};

// Two packs for each thread.
constexpr std::size_t kUnscaleChunk = std::size_t{2} * kLanes * kBlockThreads;

template <class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    unscale_kernel(const __grid_constant__ Batch batch, ScalerState* state) {
    const float factor = 1.0F / state->scale;
    const float largest = 3.402823466e38F;
    bool found = false;
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensor, part] = batch.place_of(chunk);
        const std::size_t begin = part * kUnscaleChunk;
        const std::size_t count = min(tensor.count - begin, kUnscaleChunk);
        float* const values = tensor.values + begin;
        const std::size_t packs = cuda::is_aligned(values) ? count / kLanes : 0;
        for (std::size_t i = threadIdx.x; i < packs; i += kBlockThreads) {
            float lanes[kLanes];
            cuda::load(values, i, lanes);
#pragma unroll
            for (int lane = 0; lane < kLanes; ++lane) {
                found = found || !(fabsf(lanes[lane]) <= largest);
                lanes[lane] *= factor;
            }
            cuda::store(values, i, lanes);
        }
        for (std::size_t i = packs * kLanes + threadIdx.x; i < count; i += kBlockThreads) {
            found = found || !(fabsf(values[i]) <= largest);
            values[i] *= factor;
        }
    }
    if (found) {
        state->overflow = 1.0F;
    }
}

/// Checks the tensors of one dtype.
template <class Element>
int launch_check_of(DType dtype, std::span<const ConstTensorView> tensors, ScalerState* state,
                    void* stream) {
    std::vector<Bytes> chosen;
    for (const ConstTensorView& tensor : tensors) {
        if (tensor.dtype == dtype) {
            chosen.push_back({static_cast<const unsigned char*>(tensor.data), tensor.bytes()});
        }
    }
    return launch_in_batches<cuda::kHasLargeArguments>(
        std::span<const Bytes>(chosen), kCheckChunk, [&](const auto& batch) -> int {
            return cuda::launch_blocks(check_kernel<Element, std::remove_cvref_t<decltype(batch)>>,
                                       batch.chunk_count(), stream, batch, exponents_of(dtype),
                                       state);
        });
}

}  // namespace

int GpuKernels::update_scale(ScalerState* state, const ScalerRule& rule, void* stream) const {
    return cuda::launch_one(update_scale_kernel, stream, state, rule);
}

int GpuKernels::report_overflow(ScalerState* state, void* stream) const {
    return cuda::launch_one(report_overflow_kernel, stream, state);
}

int GpuKernels::check(std::span<const ConstTensorView> tensors, ScalerState* state,
                      void* stream) const {
    int status = launch_check_of<std::uint32_t>(DType::float32, tensors, state, stream);
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
        if (status == cudaSuccess) {
            status = launch_check_of<std::uint16_t>(dtype, tensors, state, stream);
        }
    }
    return status;
}

int GpuKernels::unscale(std::span<const TensorView> tensors, ScalerState* state,
                        void* stream) const {
    std::vector<Floats> all;
    for (const TensorView& tensor : tensors) {
        all.push_back({static_cast<float*>(tensor.data), tensor.count});
    }
    return launch_in_batches<cuda::kHasLargeArguments>(
        std::span<const Floats>(all), kUnscaleChunk, [&](const auto& batch) -> int {
            return cuda::launch_blocks(unscale_kernel<std::remove_cvref_t<decltype(batch)>>,
                                       batch.chunk_count(), stream, batch, state);
        });
}

}  // namespace regroup::optim
