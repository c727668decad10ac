// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>

#include "worker_sdk/src/cuda/device_runtime.h"

namespace regroup::cuda {

/// `allocate` and `copy` where a GPU takes part, over a given runtime, which outlives the memory.
/// The views of a copy are checked and not empty.
[[nodiscard]] Buffer allocate_on(DeviceRuntime& runtime, const Device& device, std::size_t bytes);
void copy_on(DeviceRuntime& runtime, TensorView to, ConstTensorView from, Stream stream);

}  // namespace regroup::cuda
