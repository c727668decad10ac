// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {

class GpuKernels final : public Kernels {
   public:
    int update_scale(ScalerState* state, const ScalerRule& rule, void* stream) const override;
    int report_overflow(ScalerState* state, void* stream) const override;
    int check(std::span<const ConstTensorView> tensors, ScalerState* state,
              void* stream) const override;
    int unscale(std::span<const TensorView> tensors, ScalerState* state,
                void* stream) const override;
    int sum_squares(std::span<const TensorView> tensors, double* sums, void* stream) const override;
    int scale(std::span<const TensorView> tensors, double factor, void* stream) const override;
    int set_learning_rate(StepState* step, double learning_rate, void* stream) const override;
    int step(StepState* step, const ScalerState* scaler, bool divide, const AnyRule& rule,
             std::span<const FlatTensors> tensors, void* stream) const override;
    int write_shadows(std::span<const FlatTensors> tensors, void* stream) const override;
};

}  // namespace regroup::optim
