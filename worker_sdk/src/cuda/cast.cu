// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/cuda/lanes.cuh"

namespace regroup::cuda {
namespace {

/// In what is multiplied: double if either side is.
template <class To, class From>
using Between =
    std::conditional_t<std::is_same_v<To, double> || std::is_same_v<From, double>, double, float>;

template <class To, class From>
__device__ __forceinline__ To converted(From value, Between<To, From> factor) {
    using Wide = Between<To, From>;
    Wide wide;
    if constexpr (std::is_same_v<From, double>) {
        wide = value * factor;
    } else {
        wide = static_cast<Wide>(to_float(value)) * factor;
    }
    if constexpr (std::is_same_v<To, double>) {
        return wide;
    } else {
        return rounded_to<To>(static_cast<float>(wide));
    }
}

template <class To, class From>
__device__ __forceinline__ Pack<To, kLanes> converted(const Pack<From, kLanes>& from,
                                                      Between<To, From> factor) {
    Pack<To, kLanes> to;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
        to.values[lane] = converted<To>(from.values[lane], factor);
    }
    return to;
}

template <class To, class From>
__global__ void __launch_bounds__(kBlockThreads)
    cast_kernel(const From* __restrict__ from, To* __restrict__ to, std::size_t packs,
                std::size_t count, Between<To, From> factor) {
    const auto* const wide_from = reinterpret_cast<const Pack<From, kLanes>*>(from);
    auto* const wide_to = reinterpret_cast<Pack<To, kLanes>*>(to);
    const std::size_t stride = thread_count();
    for (std::size_t i = thread_index(); i < packs; i += 2 * stride) {
        // Two loads in flight before the first is used.
        const bool has_second = i + stride < packs;
        const Pack<From, kLanes> first = wide_from[i];
        const Pack<From, kLanes> second = wide_from[has_second ? i + stride : i];
        wide_to[i] = converted<To>(first, factor);
        if (has_second) {
            wide_to[i + stride] = converted<To>(second, factor);
        }
    }
    for (std::size_t i = packs * kLanes + thread_index(); i < count; i += stride) {
        to[i] = converted<To>(from[i], factor);
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
        case DType::float64:
            return launch_typed<double, From>(from, to, count, factor, stream);
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
        case DType::float64:
            return launch_from<double>(from, to, to_dtype, count, factor, stream);
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
