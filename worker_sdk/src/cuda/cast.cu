// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/cuda/lanes.cuh"

namespace regroup::cuda {
namespace {

template <class To, class From>
__global__ void __launch_bounds__(kBlockThreads)
    cast_kernel(const From* __restrict__ from, To* __restrict__ to, std::size_t packs,
                std::size_t count, float factor) {
    const std::size_t stride = thread_count();
    for (std::size_t i = thread_index(); i < packs; i += 2 * stride) {
        // Two loads in flight before the first is used.
        float first[kLanes];
        float second[kLanes];
        const bool has_second = i + stride < packs;
        load(from, i, first);
        if (has_second) {
            load(from, i + stride, second);
        }
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
            first[lane] *= factor;
            second[lane] *= factor;
        }
        store(to, i, first);
        if (has_second) {
            store(to, i + stride, second);
        }
    }
    for (std::size_t i = packs * kLanes + thread_index(); i < count; i += stride) {
        to[i] = rounded_to<To>(to_float(from[i]) * factor);
    }
}

template <class To, class From>
int launch_typed(const void* from, void* to, std::size_t count, float factor, void* stream) {
    const auto* const source = static_cast<const From*>(from);
    auto* const target = static_cast<To*>(to);
    const bool wide = is_aligned(source) && is_aligned(target);
    const std::size_t packs = wide ? count / kLanes : 0;
    const std::size_t items = wide ? packs + count % kLanes : count;
    return launch(cast_kernel<To, From>, items, stream, source, target, packs, count, factor);
}

template <class From>
int launch_from(const void* from, void* to, DType to_dtype, std::size_t count, float factor,
                void* stream) {
    switch (to_dtype) {
        case DType::float32:
            return launch_typed<float, From>(from, to, count, factor, stream);
        case DType::float16:
            return launch_typed<__half, From>(from, to, count, factor, stream);
        case DType::bfloat16:
            return launch_typed<__nv_bfloat16, From>(from, to, count, factor, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace

int launch_cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::size_t count,
                float factor, void* stream) {
    switch (from_dtype) {
        case DType::float32:
            return launch_from<float>(from, to, to_dtype, count, factor, stream);
        case DType::float16:
            return launch_from<__half>(from, to, to_dtype, count, factor, stream);
        case DType::bfloat16:
            return launch_from<__nv_bfloat16>(from, to, to_dtype, count, factor, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace regroup::cuda
