// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels behind plain functions. Each puts its work into `stream` (a cudaStream_t)
// of the current GPU, and returns the cudaError_t as a number: 0, or the reason why it did nothing.
// All pointers are to that GPU's memory.
#pragma once

#include <cstddef>

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/squares.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

[[nodiscard]] int launch_update_scale(ScalerState* state, const ScalerRule& rule, void* stream);
[[nodiscard]] int launch_report_overflow(ScalerState* state, void* stream);
/// Sets the state's overflow if there is an inf or a NaN.
[[nodiscard]] int launch_check(const void* values, DType dtype, std::size_t count,
                               ScalerState* state, void* stream);
/// The same, and divides by the scale.
[[nodiscard]] int launch_unscale(float* values, std::size_t count, ScalerState* state,
                                 void* stream);

/// Adds up the squares of each chunk of kSquaresChunk elements, in the order of
/// sum_squares_on_cpu. `sums` has one place for each chunk.
[[nodiscard]] int launch_sum_squares(void* values, DType dtype, std::size_t count, double* sums,
                                     void* stream);
/// values *= factor.
[[nodiscard]] int launch_scale(void* values, DType dtype, std::size_t count, double factor,
                               void* stream);

[[nodiscard]] int launch_set_learning_rate(StepState* step, double learning_rate, void* stream);
/// `scaler` may be null.
[[nodiscard]] int launch_begin_step(StepState* step, const ScalerState* scaler, bool divide,
                                    const SgdRule& rule, void* stream);
[[nodiscard]] int launch_begin_step(StepState* step, const ScalerState* scaler, bool divide,
                                    const AdamRule& rule, void* stream);
/// Does nothing if the step must be skipped, which only the GPU knows.
[[nodiscard]] int launch_update(const SgdRule& rule, const StepState* step,
                                const FlatTensors& tensors, void* stream);
[[nodiscard]] int launch_update(const AdamRule& rule, const StepState* step,
                                const FlatTensors& tensors, void* stream);

}  // namespace regroup::optim
