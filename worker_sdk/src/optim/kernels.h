// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels behind plain functions. Each puts its work into `stream` (a cudaStream_t)
// of the current GPU, and returns the cudaError_t as a number: 0, or the reason why it did nothing
// or not all. All tensors and pointers are to that GPU's memory. One launch does hundreds of
// tensors of the same dtypes.
#pragma once

#include <span>

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/squares.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

[[nodiscard]] int launch_update_scale(ScalerState* state, const ScalerRule& rule, void* stream);
[[nodiscard]] int launch_report_overflow(ScalerState* state, void* stream);
/// Sets the state's overflow if any of the tensors holds an inf or a NaN.
[[nodiscard]] int launch_check(std::span<const ConstTensorView> tensors, ScalerState* state,
                               void* stream);
/// The same for tensors of float, and divides them by the scale.
[[nodiscard]] int launch_unscale(std::span<const TensorView> tensors, ScalerState* state,
                                 void* stream);

/// Adds up the squares of each chunk of kSquaresChunk elements, in the order of
/// sum_squares_on_cpu. `sums` has one place for each chunk: those of the first tensor come first.
[[nodiscard]] int launch_sum_squares(std::span<const TensorView> tensors, double* sums,
                                     void* stream);
/// Multiplies all values by `factor`.
[[nodiscard]] int launch_scale(std::span<const TensorView> tensors, double factor, void* stream);

[[nodiscard]] int launch_set_learning_rate(StepState* step, double learning_rate, void* stream);
/// As step_on_cpu. Only the GPU knows whether the step must be skipped.
[[nodiscard]] int launch_step(StepState* step, const ScalerState* scaler, bool divide,
                              const AnyRule& rule, std::span<const FlatTensors> tensors,
                              void* stream);
/// Rounds the masters into their shadows, where there are any.
[[nodiscard]] int launch_write_shadows(std::span<const FlatTensors> tensors, void* stream);

}  // namespace regroup::optim
