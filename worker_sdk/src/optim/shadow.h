// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <span>

#include "worker_sdk/src/optim/flat_tensors.h"

namespace regroup::optim {

/// Rounds the masters into their shadows, where there are any. On a GPU, in the order of `stream`.
void write_shadows(const Device& device, std::span<const FlatTensors> tensors, Stream stream);

}  // namespace regroup::optim
