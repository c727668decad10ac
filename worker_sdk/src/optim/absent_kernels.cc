// SPDX-License-Identifier: Apache-2.0
// Replaces the kernels in a build without CUDA. Never called, since no tensor can be on a GPU.
#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup {
namespace {

int no_kernel() {
    constexpr bool kThereIsAKernel = false;
    ENSURE(kThereIsAKernel);
    return 0;
}

}  // namespace

namespace optim {

int launch_update_scale(ScalerState* /*state*/, const ScalerRule& /*rule*/, void* /*stream*/) {
    return no_kernel();
}

int launch_report_overflow(ScalerState* /*state*/, void* /*stream*/) {
    return no_kernel();
}

int launch_check(std::span<const ConstTensorView> /*tensors*/, ScalerState* /*state*/,
                 void* /*stream*/) {
    return no_kernel();
}

int launch_unscale(std::span<const TensorView> /*tensors*/, ScalerState* /*state*/,
                   void* /*stream*/) {
    return no_kernel();
}

int launch_sum_squares(std::span<const TensorView> /*tensors*/, double* /*sums*/,
                       void* /*stream*/) {
    return no_kernel();
}

int launch_scale(std::span<const TensorView> /*tensors*/, double /*factor*/, void* /*stream*/) {
    return no_kernel();
}

int launch_set_learning_rate(StepState* /*step*/, double /*learning_rate*/, void* /*stream*/) {
    return no_kernel();
}

int launch_step(StepState* /*step*/, const ScalerState* /*scaler*/, bool /*divide*/,
                const AnyRule& /*rule*/, std::span<const FlatTensors> /*tensors*/,
                void* /*stream*/) {
    return no_kernel();
}

int launch_write_shadows(std::span<const FlatTensors> /*tensors*/, void* /*stream*/) {
    return no_kernel();
}

}  // namespace optim
}  // namespace regroup
