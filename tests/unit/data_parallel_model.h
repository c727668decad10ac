// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <span>
#include <vector>

namespace regroup::testing {

/// The device of tests on GPUs that are host memory.
inline constexpr Device kGpu{DeviceKind::cuda, 0};

/// A model whose gradients are the wrapper's.
struct Model {
    Model(ProcessGroup& group, const std::vector<std::size_t>& counts,
          const DataParallelOptions& options = {})
        : values(make_values(counts)), ddp(group, parameters(values), {}, options) {}

    static std::vector<std::vector<float>> make_values(const std::vector<std::size_t>& counts) {
        std::vector<std::vector<float>> values;
        for (const std::size_t count : counts) {
            values.emplace_back(count);
        }
        return values;
    }
    static std::vector<Parameter> parameters(std::vector<std::vector<float>>& values) {
        std::vector<Parameter> list;
        for (auto& value : values) {
            list.push_back({std::span(value)});
        }
        return list;
    }

    [[nodiscard]] std::span<float> gradient(std::size_t index) const {
        const TensorView view = ddp.gradient(index);
        return {static_cast<float*>(view.data), view.count};
    }
    [[nodiscard]] std::vector<float> contents(std::size_t index) const {
        return {gradient(index).begin(), gradient(index).end()};
    }
    // Acts like a backward pass: adds to a gradient, then reports it.
    void add(std::size_t index, float value) {
        for (float& item : gradient(index)) {
            item += value;
        }
        ddp.gradient_ready(index);
    }

    std::vector<std::vector<float>> values;
    DistributedDataParallel ddp;
};

}  // namespace regroup::testing
