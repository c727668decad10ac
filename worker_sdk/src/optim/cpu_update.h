// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <span>

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/squares.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

// One step for all elements, as `step` says, which has begun and is not to be skipped. SGD without
// momentum has no moments.

void update_on_cpu(const SgdRule& rule, const StepState& step, const FlatTensors& tensors);
void update_on_cpu(const AdamRule& rule, const StepState& step, const FlatTensors& tensors);

/// Rounds the masters into their shadow, if there is one.
void write_shadow_on_cpu(const FlatTensors& tensors);

/// values *= factor, for float32, float64, float16 and bfloat16.
void scale_on_cpu(const TensorView& values, double factor);

/// Adds up the squares of each chunk of kSquaresChunk elements; `sums` has a place for each. For
/// the same dtypes.
void sum_squares_on_cpu(const ConstTensorView& values, std::span<double> sums);

}  // namespace regroup::optim
