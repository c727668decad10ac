// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <span>

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/squares.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

/// Begins a step, and does it for all elements unless it must be skipped. `scaler` may be null:
/// gradients that are not scaled. SGD without momentum has no moments.
void step_on_cpu(StepState& step, const ScalerState* scaler, bool divide, const AnyRule& rule,
                 std::span<const FlatTensors> tensors);

/// Rounds the masters into their shadow, if there is one.
void write_shadow_on_cpu(const FlatTensors& tensors);

/// values *= factor, for float32, float64, float16 and bfloat16.
void scale_on_cpu(const TensorView& values, double factor);

/// Adds up the squares of each chunk of kSquaresChunk elements; `sums` has a place for each. For
/// the same dtypes.
void sum_squares_on_cpu(const ConstTensorView& values, std::span<double> sums);

}  // namespace regroup::optim
