// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

// One step for all elements, as `step` says, which has begun and is not to be skipped. SGD without
// momentum has no moments.

void update_on_cpu(const SgdRule& rule, const StepState& step, const FlatTensors& tensors);
void update_on_cpu(const AdamRule& rule, const StepState& step, const FlatTensors& tensors);

/// Rounds the masters into their shadow, if there is one.
void write_shadow_on_cpu(const FlatTensors& tensors);

/// values *= factor.
void scale_on_cpu(float* values, std::size_t count, float factor);

}  // namespace regroup::optim
