// SPDX-License-Identifier: Apache-2.0
// The GPU functions of a build without CUDA.
#include "worker_sdk/src/cuda/absent.h"

#include <regroup/error.h>

#include "worker_sdk/src/ddp/convert.h"
#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::ddp {

std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& /*device*/,
                                                          Stream /*stream*/) {
    throw Error(Errc::invalid_argument, cuda::kAbsent);
}

void convert_values_on_gpu(ConstTensorView /*from*/, TensorView /*to*/, float /*factor*/,
                           Stream /*stream*/) {
    throw Error(Errc::invalid_argument, cuda::kAbsent);
}

}  // namespace regroup::ddp
