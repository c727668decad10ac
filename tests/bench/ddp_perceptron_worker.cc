// SPDX-License-Identifier: Apache-2.0
//
// One rank of the perceptron of ddp_bench: 784-512-512-10, batches of 64, SGD, one thread:
//
//     ddp_perceptron_worker RESULT_FILE STEPS
//
// Optimized as a user would: Eigen writes directly to the gradients.
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "tests/bench/ddp_worker.h"

namespace regroup::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;

constexpr Eigen::Index kBatch = 64;
constexpr std::array<Eigen::Index, 4> kWidths{784, 512, 512, 10};
constexpr std::size_t kLayerCount = kWidths.size() - 1;
constexpr float kLearningRate = 0.01F;
constexpr int kWarmUpSteps = 20;

class Perceptron {
   public:
    explicit Perceptron(std::uint32_t seed) : random_(seed) {
        for (std::size_t layer = 0; layer < kLayerCount; ++layer) {
            const float scale = 1.0F / std::sqrt(static_cast<float>(kWidths[layer]));
            values_.push_back(scale * uniform(kWidths[layer], kWidths[layer + 1]));
            values_.push_back(scale * uniform(1, kWidths[layer + 1]));
        }
        activations_[0] = uniform(kBatch, kWidths[0]);
        for (Eigen::Index i = 0; i < kBatch; ++i) {
            labels_[static_cast<std::size_t>(i)] =
                static_cast<Eigen::Index>(random_() % static_cast<std::uint32_t>(kWidths.back()));
        }
    }

    [[nodiscard]] std::vector<Parameter> parameters() {
        std::vector<Parameter> list;
        for (Matrix& value : values_) {
            list.push_back({std::span(value.data(), static_cast<std::size_t>(value.size()))});
        }
        return list;
    }

    void step(DistributedDataParallel& ddp) {
        forward();
        backward(ddp);
        ddp.finish_step();
        for (std::size_t index = 0; index < values_.size(); ++index) {
            values_[index] -= kLearningRate * gradient(ddp, index);
        }
    }

   private:
    Matrix uniform(Eigen::Index rows, Eigen::Index columns) {
        Matrix matrix(rows, columns);
        for (float& value : matrix.reshaped()) {
            value = static_cast<float>(random_()) * 0x1p-31F - 1.0F;
        }
        return matrix;
    }

    Map gradient(const DistributedDataParallel& ddp, std::size_t index) {
        return {static_cast<float*>(ddp.gradient(index).data), values_[index].rows(),
                values_[index].cols()};
    }

    void forward() {
        for (std::size_t layer = 0; layer < kLayerCount; ++layer) {
            Matrix& output = activations_[layer + 1];
            output.noalias() = activations_[layer] * values_[2 * layer];
            output.rowwise() += values_[2 * layer + 1].row(0);
            if (layer + 1 < kLayerCount) {
                output = output.cwiseMax(0.0F);
            }
        }
    }

    // The mean of the cross-entropies of a softmax; from the last layer to the first.
    void backward(DistributedDataParallel& ddp) {
        Matrix& scores = activations_[kLayerCount];
        for (Eigen::Index i = 0; i < kBatch; ++i) {
            auto row = scores.row(i);
            row = (row.array() - row.maxCoeff()).exp();
            row /= row.sum();
            row[labels_[static_cast<std::size_t>(i)]] -= 1.0F;
        }
        slopes_ = scores / static_cast<float>(kBatch);
        for (std::size_t layer = kLayerCount; layer-- > 0;) {
            gradient(ddp, 2 * layer + 1) = slopes_.colwise().sum();
            ddp.gradient_ready(2 * layer + 1);
            gradient(ddp, 2 * layer).noalias() = activations_[layer].transpose() * slopes_;
            ddp.gradient_ready(2 * layer);
            if (layer > 0) {
                before_.noalias() = slopes_ * values_[2 * layer].transpose();
                slopes_ = (activations_[layer].array() > 0.0F).select(before_, 0.0F);
            }
        }
    }

    std::mt19937 random_;
    std::vector<Matrix> values_;  // weight [in, out] and bias [1, out] of each layer
    std::array<Matrix, kLayerCount + 1> activations_;  // [batch, width]
    std::array<Eigen::Index, kBatch> labels_{};
    Matrix slopes_;
    Matrix before_;
};

int run(const std::string& result, int steps) {
    Eigen::setNbThreads(1);
    const auto group = ProcessGroup::create("cpu", Context::from_environment());
    Perceptron perceptron(1 + group->rank());
    DistributedDataParallel ddp(*group, perceptron.parameters());
    for (int step = 0; step < kWarmUpSteps; ++step) {
        perceptron.step(ddp);
    }
    const Cost cost = measure(*group, [&] {
        for (int step = 0; step < steps; ++step) {
            perceptron.step(ddp);
        }
    });
    Results(result, *group).add("step", {cost.wall_ms / steps, cost.cpu_ms / steps});
    return 0;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: ddp_perceptron_worker RESULT_FILE STEPS\n");
        return 2;
    }
    try {
        return regroup::bench::run(argv[1], std::max(1, std::atoi(argv[2])));
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "ddp_perceptron_worker: %s\n", error.what());
        return 1;
    }
}
