// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include <cuda_runtime.h>
#include <memory>
#include <string>

#include "gpu_product.h"

namespace cluster_check {
namespace {

constexpr unsigned kTile = 16;

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        throw regroup::Error(regroup::Errc::system,
                             std::string(what) + ": " + cudaGetErrorString(error));
    }
}

struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
};
template <class T>
using DeviceArray = std::unique_ptr<T, Free>;

template <class T>
DeviceArray<T> allocate(std::size_t count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    return DeviceArray<T>(static_cast<T*>(memory));
}

/// Counts the elements of a*b that differ from `expected`. `size` is a multiple of kTile.
__global__ void compare_product(const float* a, const float* b, const float* expected,
                                unsigned size, unsigned long long* wrong) {
    __shared__ float a_tile[kTile][kTile];
    __shared__ float b_tile[kTile][kTile];
    const unsigned row = blockIdx.y * kTile + threadIdx.y;
    const unsigned column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0.0F;
    for (unsigned first = 0; first < size; first += kTile) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * size + first + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * size + column];
        __syncthreads();
        for (unsigned i = 0; i < kTile; ++i) {
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (__float_as_uint(sum) != __float_as_uint(expected[row * size + column])) {
        atomicAdd(wrong, 1ULL);
    }
}

}  // namespace

std::size_t wrong_elements_on_gpu(int device, const float* a, const float* b, const float* expected,
                                  std::size_t size, int rounds) {
    check(cudaSetDevice(device), "cudaSetDevice");
    const std::size_t count = size * size;
    const DeviceArray<float> left = allocate<float>(count);
    const DeviceArray<float> right = allocate<float>(count);
    const DeviceArray<float> right_answer = allocate<float>(count);
    const DeviceArray<unsigned long long> wrong = allocate<unsigned long long>(1);
    const auto upload = [count](float* to, const float* from) {
        check(cudaMemcpy(to, from, count * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
    };
    upload(left.get(), a);
    upload(right.get(), b);
    upload(right_answer.get(), expected);
    check(cudaMemset(wrong.get(), 0, sizeof(unsigned long long)), "cudaMemset");
    const auto tiles = static_cast<unsigned>(size / kTile);
    for (int round = 0; round < rounds; ++round) {
        compare_product<<<dim3(tiles, tiles), dim3(kTile, kTile)>>>(
            left.get(), right.get(), right_answer.get(), static_cast<unsigned>(size), wrong.get());
        check(cudaGetLastError(), "the product's kernel");
    }
    unsigned long long found = 0;
    check(cudaMemcpy(&found, wrong.get(), sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return static_cast<std::size_t>(found);
}

}  // namespace cluster_check
