// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/fused_optimizer.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::optim {

/// Throws Error `invalid_argument` unless `holds`.
void require(bool holds, const std::string& problem, const char* subject = "optimizer");

[[nodiscard]] std::vector<ConstTensorView> gradients_of(const DistributedDataParallel& ddp);

/// The name of a checkpoint's entry.
[[nodiscard]] inline std::string entry(std::string_view prefix, const std::string& name) {
    return std::string(prefix) + "." + name;
}

/// The reference for the tensors at `index`: the count of their master, the device of the first
/// master.
struct Measure {
    std::size_t index = 0;
    std::size_t count = 0;
    Device device;
};

// These throw Error `invalid_argument` naming the tensor and what is wrong with it.

void check_gradient(const ConstTensorView& gradient, const Measure& measure);
/// `count_of(tensor)` is that of the master.
template <class Tensor, class Count>
void check_gradients(std::span<const ConstTensorView> gradients, const std::vector<Tensor>& tensors,
                     const Device& device, const Count& count_of) {
    require(gradients.size() == tensors.size(),
            "it has " + std::to_string(tensors.size()) + " tensors, but was given " +
                std::to_string(gradients.size()) + " gradients");
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        check_gradient(gradients[index], {index, count_of(tensors[index]), device});
    }
}
void check_tensors(const std::vector<OptimizerTensors>& tensors);

}  // namespace regroup::optim
