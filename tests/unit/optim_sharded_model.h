// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/sharded_optimizer.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/optim_support.h"

namespace regroup::sharded {

using Options = std::variant<SgdOptions, AdamOptions>;

inline const std::array<Options, 3> kOptions{
    SgdOptions{.learning_rate = 0.125},
    SgdOptions{.learning_rate = 0.125, .momentum = 0.9, .weight_decay = 0.01},
    AdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true}};

/// Some tensors are smaller than a shard, some lie in several.
inline const std::vector<std::size_t> kCounts{10, 50'001, 0, 4096, 20'000, 3};

/// Parameters and gradients of one rank. Gradients are random, and the same on all ranks.
struct Model {
    explicit Model(const std::vector<std::size_t>& counts = kCounts) {
        for (std::size_t t = 0; t < counts.size(); ++t) {
            masters.push_back(testing::random_values(counts[t], t));
            gradients.emplace_back(counts[t]);
            shadows.emplace_back(counts[t]);
        }
    }
    std::vector<OptimizerTensors> tensors() {
        std::vector<OptimizerTensors> list;
        for (std::size_t t = 0; t < masters.size(); ++t) {
            list.push_back({.master = std::span(masters[t]),
                            .gradient = std::span(gradients[t]),
                            .shadow = std::span(shadows[t])});
        }
        return list;
    }
    void make_gradients(std::uint64_t step) {
        for (std::size_t t = 0; t < gradients.size(); ++t) {
            // In place, where the optimizers look for them.
            std::ranges::copy(testing::random_values(gradients[t].size(), 1000 + 100 * step + t),
                              gradients[t].begin());
        }
    }

    std::vector<std::vector<float>> masters;
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<bfloat16>> shadows;
};

template <class Optimizer, class... More>
Optimizer make(Model& model, const Options& options, const More&... more) {
    return std::visit([&](const auto& known) { return Optimizer(model.tensors(), known, more...); },
                      options);
}

template <class Optimizer>
void train(Model& model, Optimizer& optimizer, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step < last; ++step) {
        model.make_gradients(step);
        optimizer.set_learning_rate(0.01 / static_cast<double>(step + 1));
        optimizer.step();
    }
}

inline void expect_same(const Model& model, const Model& expected) {
    for (std::size_t t = 0; t < model.masters.size(); ++t) {
        ASSERT_TRUE(model.masters[t] == expected.masters[t]) << "tensor " << t;
        ASSERT_TRUE(model.shadows[t] == expected.shadows[t]) << "tensor " << t;
    }
}

/// A training of one process with the whole state.
inline std::unique_ptr<Model> trained_whole(const Options& options, std::uint64_t steps) {
    auto model = std::make_unique<Model>();
    auto optimizer = make<FusedOptimizer>(*model, options);
    train(*model, optimizer, 0, steps);
    return model;
}

inline std::size_t moment_bytes(const ShardedOptimizer& optimizer) {
    std::size_t bytes = 0;
    for (const TensorView& view : optimizer.state()) {
        bytes += view.dtype == DType::float32 ? view.bytes() : 0;
    }
    return bytes;
}

}  // namespace regroup::sharded
