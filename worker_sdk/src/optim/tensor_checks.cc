// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/optim/tensor_checks.h"

#include <regroup/error.h>

namespace regroup::optim {

void require(bool holds, const std::string& problem, const char* subject) {
    if (!holds) {
        throw Error(Errc::invalid_argument, std::string(subject) + ": " + problem);
    }
}

namespace {

bool has_16_bits(DType dtype) {
    return dtype == DType::float16 || dtype == DType::bfloat16;
}

void check_view(const ConstTensorView& view, const Measure& measure, const char* name,
                bool dtype_fits, const char* dtypes) {
    const std::string which = "of tensors " + std::to_string(measure.index) + ", the " + name;
    require(dtype_fits,
            which + " must be " + dtypes + ", not " + std::string(to_string(view.dtype)));
    require(view.count == measure.count, which + " has " + std::to_string(view.count) +
                                             " elements, but the master " +
                                             std::to_string(measure.count));
    require(view.count == 0 || view.data != nullptr, which + " has no data");
    require(view.device == measure.device, which + " is on " + to_string(view.device) +
                                               ", but the first master on " +
                                               to_string(measure.device));
}

bool is_left_out(const ConstTensorView& gradient) {
    return gradient.data == nullptr && gradient.count == 0;
}

}  // namespace

void check_gradient(const ConstTensorView& gradient, const Measure& measure) {
    check_view(gradient, measure, "gradient",
               gradient.dtype == DType::float32 || has_16_bits(gradient.dtype),
               "float32, float16 or bfloat16");
}

std::vector<ConstTensorView> gradients_of(const DistributedDataParallel& ddp) {
    std::vector<ConstTensorView> gradients;
    for (std::size_t index = 0; index < ddp.parameter_count(); ++index) {
        gradients.push_back(ddp.gradient(index));
    }
    return gradients;
}

void check_tensors(const std::vector<OptimizerTensors>& tensors) {
    require(!tensors.empty(), "it was given no tensors");
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        const auto& [master, gradient, shadow] = tensors[index];
        const Measure measure{index, master.count, tensors.front().master.device};
        check_view(master, measure, "master", master.dtype == DType::float32, "float32");
        if (!is_left_out(gradient)) {
            check_gradient(gradient, measure);
        }
        if (shadow.data != nullptr) {
            check_view(shadow, measure, "shadow", has_16_bits(shadow.dtype), "float16 or bfloat16");
        }
    }
}

}  // namespace regroup::optim
