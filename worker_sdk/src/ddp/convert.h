// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

namespace regroup::ddp {

/// `to[i] = to's type(factor * from[i])` for equal counts of float16, bfloat16, float32 or float64,
/// one side of which at least is float32 or float64, on one device. Rounds to nearest, ties to
/// even. On a GPU it is put into `stream`.
void convert_values(ConstTensorView from, TensorView to, float factor, Stream stream);

/// The one for GPUs; see worker_sdk/src/cuda.
void convert_values_on_gpu(ConstTensorView from, TensorView to, float factor, Stream stream);

}  // namespace regroup::ddp
