// SPDX-License-Identifier: Apache-2.0
// Owning wrappers of CUDA and cuBLAS objects. Their errors become regroup::Error.
#pragma once

#include <regroup/error.h>

#include <cstddef>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <string>
#include <utility>

namespace example {

[[noreturn]] inline void fail(const char* operation, const std::string& problem) {
    throw regroup::Error(regroup::Errc::system, std::string(operation) + ": " + problem);
}
inline void check(cudaError_t status, const char* operation) {
    if (status != cudaSuccess) {
        fail(operation, ::cudaGetErrorString(status));
    }
}
inline void check(cublasStatus_t status, const char* operation) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        fail(operation, ::cublasGetStatusString(status));
    }
}

/// GPU memory that grows on demand. Growing loses the content.
template <class T>
class DeviceBuffer {
   public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(std::size_t count) { reserve(count); }
    ~DeviceBuffer() { ::cudaFree(data_); }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    void reserve(std::size_t count) {
        if (count > count_) {
            ::cudaFree(std::exchange(data_, nullptr));
            count_ = 0;
            void* memory = nullptr;
            check(::cudaMalloc(&memory, count * sizeof(T)), "allocating GPU memory (cudaMalloc)");
            data_ = static_cast<T*>(memory);
            count_ = count;
            check(::cudaMemset(data_, 0, count * sizeof(T)), "clearing GPU memory (cudaMemset)");
        }
    }
    /// Makes room, and copies `count` elements from the host.
    void fill(const T* host, std::size_t count) {
        reserve(count);
        check(::cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice),
              "copying to the GPU (cudaMemcpy)");
    }
    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

   private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
};

/// A handle or descriptor, with functions that make and destroy it. `describe` turns an error to
/// text.
template <class Handle, auto create, auto destroy, auto describe>
class Owned {
   public:
    Owned() {
        const auto status = create(&handle_);
        if (static_cast<int>(status) != 0) {
            fail("making a handle of a CUDA library", describe(status));
        }
    }
    ~Owned() { destroy(handle_); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    operator Handle() const { return handle_; }  // NOLINT: implicit on purpose

   private:
    Handle handle_{};
};
using Blas = Owned<cublasHandle_t, ::cublasCreate_v2, ::cublasDestroy_v2, ::cublasGetStatusString>;

}  // namespace example
