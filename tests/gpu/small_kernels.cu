// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/small_kernels.h"

namespace regroup::gpu {
namespace {

constexpr unsigned kBlock = 256;

__global__ void layer(const float* weight, float* gradient, std::size_t count) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) {
        gradient[i] = 0.5F * weight[i] + 1.0F;
    }
}

unsigned blocks(std::size_t count) {
    return static_cast<unsigned>((count + kBlock - 1) / kBlock);
}

}  // namespace

void launch_layer(const float* weight, float* gradient, std::size_t count, cudaStream_t stream) {
    layer<<<blocks(count), kBlock, 0, stream>>>(weight, gradient, count);
}

}  // namespace regroup::gpu
