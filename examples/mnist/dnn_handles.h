// SPDX-License-Identifier: Apache-2.0
// Owning wrappers of cuDNN objects.
#pragma once

#include <cstddef>
#include <cudnn.h>

#include "cuda_handles.h"

namespace mnist {

using example::Blas;
using example::check;
using example::DeviceBuffer;

inline void check(cudnnStatus_t status, const char* operation) {
    if (status != CUDNN_STATUS_SUCCESS) {
        example::fail(operation, ::cudnnGetErrorString(status));
    }
}

template <class Handle, auto create, auto destroy>
using OwnedDnn = example::Owned<Handle, create, destroy, ::cudnnGetErrorString>;
using Dnn = OwnedDnn<cudnnHandle_t, ::cudnnCreate, ::cudnnDestroy>;
using FilterDescriptor = OwnedDnn<cudnnFilterDescriptor_t, ::cudnnCreateFilterDescriptor,
                                  ::cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    OwnedDnn<cudnnConvolutionDescriptor_t, ::cudnnCreateConvolutionDescriptor,
             ::cudnnDestroyConvolutionDescriptor>;
using PoolingDescriptor = OwnedDnn<cudnnPoolingDescriptor_t, ::cudnnCreatePoolingDescriptor,
                                   ::cudnnDestroyPoolingDescriptor>;
using ActivationDescriptor =
    OwnedDnn<cudnnActivationDescriptor_t, ::cudnnCreateActivationDescriptor,
             ::cudnnDestroyActivationDescriptor>;
using OpDescriptor = OwnedDnn<cudnnOpTensorDescriptor_t, ::cudnnCreateOpTensorDescriptor,
                              ::cudnnDestroyOpTensorDescriptor>;

/// Floats in the order [n, channels, height, width].
class TensorDescriptor : public OwnedDnn<cudnnTensorDescriptor_t, ::cudnnCreateTensorDescriptor,
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
