// SPDX-License-Identifier: Apache-2.0
// The objects of CUDA, cuBLAS and cuDNN, each with an owner, and their errors as regroup::Error.
#pragma once

#include <regroup/error.h>

#include <cstddef>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace mnist {

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
inline void check(cudnnStatus_t status, const char* operation) {
    if (status != CUDNN_STATUS_SUCCESS) {
        fail(operation, ::cudnnGetErrorString(status));
    }
}

/// Memory of the GPU that grows when it must. Growing loses the content.
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

/// Any handle or descriptor that one function makes and another one ends.
template <class Handle, auto create, auto destroy>
class Owned {
   public:
    Owned() { check(create(&handle_), "making a handle of cuBLAS or cuDNN"); }
    ~Owned() { destroy(handle_); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    operator Handle() const { return handle_; }  // NOLINT: implicit on purpose

   private:
    Handle handle_{};
};
using Blas = Owned<cublasHandle_t, ::cublasCreate_v2, ::cublasDestroy_v2>;
using Dnn = Owned<cudnnHandle_t, ::cudnnCreate, ::cudnnDestroy>;
using FilterDescriptor =
    Owned<cudnnFilterDescriptor_t, ::cudnnCreateFilterDescriptor, ::cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Owned<cudnnConvolutionDescriptor_t, ::cudnnCreateConvolutionDescriptor,
          ::cudnnDestroyConvolutionDescriptor>;
using PoolingDescriptor = Owned<cudnnPoolingDescriptor_t, ::cudnnCreatePoolingDescriptor,
                                ::cudnnDestroyPoolingDescriptor>;
using ActivationDescriptor = Owned<cudnnActivationDescriptor_t, ::cudnnCreateActivationDescriptor,
                                   ::cudnnDestroyActivationDescriptor>;
using OpDescriptor = Owned<cudnnOpTensorDescriptor_t, ::cudnnCreateOpTensorDescriptor,
                           ::cudnnDestroyOpTensorDescriptor>;

/// Floats in the order [n, channels, height, width].
class TensorDescriptor : public Owned<cudnnTensorDescriptor_t, ::cudnnCreateTensorDescriptor,
                                      ::cudnnDestroyTensorDescriptor> {
   public:
    void set(int n, std::size_t channels, std::size_t height = 1, std::size_t width = 1) {
        check(::cudnnSetTensor4dDescriptor(*this, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n,
                                           static_cast<int>(channels), static_cast<int>(height),
                                           static_cast<int>(width)),
              "describing a tensor (cudnnSetTensor4dDescriptor)");
    }
};

}  // namespace mnist
