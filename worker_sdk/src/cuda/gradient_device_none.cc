// SPDX-License-Identifier: Apache-2.0
// In place of gradient_device.cu where there is no CUDA: nothing gets here, since no group can be
// on a GPU then.
#include <regroup/error.h>

#include "worker_sdk/src/training/convert.h"
#include "worker_sdk/src/training/gradient_device.h"

namespace regroup::training {
namespace {

[[noreturn]] void refuse(const Device& device) {
    throw Error(Errc::invalid_argument,
                "data parallel: this build of regroup was made without "
                "CUDA, and cannot work on " +
                    to_string(device));
}

}  // namespace

std::unique_ptr<GradientDevice> make_cuda_gradient_device(const Device& device, Stream /*stream*/) {
    refuse(device);
}

void convert_values_on_gpu(ConstTensorView from, TensorView /*to*/, float /*factor*/,
                           Stream /*stream*/) {
    refuse(from.device);
}

}  // namespace regroup::training
