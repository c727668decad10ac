// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cuda_runtime_api.h>
#include <string>
#include <vector>

namespace regroup::testing {

inline void require_cuda(cudaError_t status, const char* operation) {
    if (status != cudaSuccess) {
        throw Error(Errc::system, std::string(operation) + ": " + ::cudaGetErrorString(status));
    }
}

/// An array on GPU 0. With `shift` it begins so many elements after a multiple of 256 bytes.
template <class T>
class OnGpu {
   public:
    explicit OnGpu(std::size_t count, std::size_t shift = 0) : count_(count), shift_(shift) {
        require_cuda(::cudaMalloc(&memory_, (count + shift) * sizeof(T) + 1), "cudaMalloc");
        require_cuda(::cudaMemset(memory_, 0xa5, (count + shift) * sizeof(T)), "cudaMemset");
        await_default_stream();
    }
    explicit OnGpu(const std::vector<T>& values, std::size_t shift = 0)
        : OnGpu(values.size(), shift) {
        write(values);
    }
    ~OnGpu() { ::cudaFree(memory_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;

    [[nodiscard]] T* data() const { return static_cast<T*>(memory_) + shift_; }
    [[nodiscard]] TensorView view() const {
        return {data(), count_, DTypeOf<T>::value, {DeviceKind::cuda, 0}};
    }
    void write(const std::vector<T>& values) {
        require_cuda(
            ::cudaMemcpy(data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy");
        await_default_stream();
    }
    [[nodiscard]] std::vector<T> read() const {
        std::vector<T> values(count_);
        require_cuda(
            ::cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost),
            "cudaMemcpy");
        return values;
    }

   private:
    /// Other streams do not wait for the default stream, whose copies and memsets may still be
    /// under way when the call returns.
    static void await_default_stream() {
        require_cuda(::cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }

    void* memory_ = nullptr;
    std::size_t count_;
    std::size_t shift_;
};

}  // namespace regroup::testing
