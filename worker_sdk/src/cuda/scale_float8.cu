// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/cuda/lanes.cuh"

namespace regroup::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    scale_kernel(const T* from, T* to, std::size_t count, float factor) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        to[i] = T(static_cast<float>(from[i]) * factor);
    }
}

template <class T>
int launch_typed(const void* from, void* to, std::size_t count, float factor, void* stream) {
    const auto rounded = static_cast<float>(T(factor));
    return launch(scale_kernel<T>, count, stream, static_cast<const T*>(from), static_cast<T*>(to),
                  count, rounded);
}

}  // namespace

int launch_scale_float8(const void* from, void* to, DType dtype, std::size_t count, float factor,
                        void* stream) {
    switch (dtype) {
        case DType::float8_e4m3fn:
            return launch_typed<__nv_fp8_e4m3>(from, to, count, factor, stream);
        case DType::float8_e5m2:
            return launch_typed<__nv_fp8_e5m2>(from, to, count, factor, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace regroup::cuda
