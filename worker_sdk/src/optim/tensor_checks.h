// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/fused_optimizer.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <string>
#include <vector>

namespace regroup::optim {

/// Throws Error `invalid_argument` unless `holds`.
void require(bool holds, const std::string& problem);

/// The reference for the tensors at `index`: the count of their master, the device of the first
/// master.
struct Measure {
    std::size_t index = 0;
    std::size_t count = 0;
    Device device;
};

// These throw Error `invalid_argument` naming the tensor and what is wrong with it.

void check_gradient(const ConstTensorView& gradient, const Measure& measure);
void check_tensors(const std::vector<OptimizerTensors>& tensors);

}  // namespace regroup::optim
