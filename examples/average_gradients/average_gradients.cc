// SPDX-License-Identifier: Apache-2.0
//
// Synchronous SGD by hand, compared with DistributedDataParallel:
//
//     regroup run --standalone --nproc-per-node=2 average_gradients --steps 100
//
// By hand it is one function, `average_gradients`: after the backward pass, each gradient is summed
// over the ranks and divided by their number. This is the baseline of data parallelism: no
// communication overlaps with the backward pass, and each tensor needs a collective. Then
// DistributedDataParallel trains the same model, from the same start on the same data, and both
// times are printed. On two ranks the results agree to the last bit. On more, they agree up to the
// rounding of sums in another order. With `--backend nccl` gradients are reduced on the ranks'
// GPUs, and the model is still computed on the host, so the time is mostly copying.

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::ReduceOp;
using Floats = example::DeviceVector<float>;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Eigen::Index kInputs = 64;
constexpr Eigen::Index kBatch = 32;
constexpr float kLearningRate = 0.05F;

struct Options {
    std::int64_t steps = 100;
    std::int64_t layers = 8;
    std::int64_t width = 128;
    std::string backend = "cpu";
};

/// `layers` hidden layers with tanh, one linear output; learns the sum of its inputs' squares.
class Perceptron {
   public:
    Perceptron(const Options& options, const regroup::Device& device, std::uint32_t data_seed)
        : random_(1) {
        Eigen::Index inputs = kInputs;
        for (std::int64_t layer = 0; layer <= options.layers; ++layer) {
            const Eigen::Index outputs = layer == options.layers ? 1 : options.width;
            add_parameter(inputs, outputs, device);
            const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
            values.back() = scale * uniform(inputs, outputs);
            device_values.back().upload();
            add_parameter(1, outputs, device);
            inputs = outputs;
        }
        activations_.resize(values.size() / 2 + 1);
        random_.seed(data_seed);
    }

    /// Draws a batch, computes the gradients from the last layer to the first, and calls
    /// `ready(index)` when each is final. Returns the loss.
    float forward_backward(const std::function<void(std::size_t)>& ready) {
        activations_[0] = uniform(kBatch, kInputs);
        const Matrix target = activations_[0].array().square().rowwise().sum();
        const std::size_t layers = values.size() / 2;
        for (std::size_t layer = 0; layer < layers; ++layer) {
            Matrix& output = activations_[layer + 1];
            output.noalias() = activations_[layer] * values[2 * layer];
            output.rowwise() += values[2 * layer + 1].row(0);
            if (layer + 1 < layers) {
                output = output.array().tanh();
            }
        }
        Matrix slopes = (activations_[layers] - target) / static_cast<float>(kBatch * kInputs);
        const float loss = (activations_[layers] - target).squaredNorm() / kBatch;
        for (std::size_t layer = layers; layer-- > 0;) {
            gradients[2 * layer + 1] = slopes.colwise().sum();
            ready(2 * layer + 1);
            gradients[2 * layer].noalias() = activations_[layer].transpose() * slopes;
            ready(2 * layer);
            const Matrix before = slopes * values[2 * layer].transpose();
            slopes = before.array() * (1.0F - activations_[layer].array().square());
        }
        return loss;
    }

    void apply_gradients() {
        for (std::size_t index = 0; index < values.size(); ++index) {
            values[index] -= kLearningRate * gradients[index];
        }
    }

    // Weight [in, out] and bias [1, out] of each layer, and the same as matrices on the host.
    std::vector<Floats> device_values;
    std::vector<Floats> device_gradients;
    std::vector<Eigen::Map<Matrix>> values;
    std::vector<Eigen::Map<Matrix>> gradients;

   private:
    void add_parameter(Eigen::Index rows, Eigen::Index columns, const regroup::Device& device) {
        const auto count = static_cast<std::size_t>(rows * columns);
        Floats& value = device_values.emplace_back(count, device);
        Floats& gradient = device_gradients.emplace_back(count, device);
        // Moving a DeviceVector does not move its values, so these pointers stay valid.
        values.emplace_back(value.host().data(), rows, columns);
        gradients.emplace_back(gradient.host().data(), rows, columns);
    }

    Matrix uniform(Eigen::Index rows, Eigen::Index columns) {
        Matrix matrix(rows, columns);
        for (float& value : matrix.reshaped()) {
            value = static_cast<float>(random_()) * 0x1p-31F - 1.0F;
        }
        return matrix;
    }

    std::mt19937 random_;
    std::vector<Matrix> activations_;  // [batch, width]
};

/// Synchronous SGD by hand.
void average_gradients(ProcessGroup& group, Perceptron& model) {
    const auto world_size = static_cast<float>(group.world_size());
    for (std::size_t index = 0; index < model.gradients.size(); ++index) {
        Floats& gradient = model.device_gradients[index];
        gradient.upload();
        group.all_reduce(gradient.view(), ReduceOp::sum).wait();
        gradient.download();
        model.gradients[index] /= world_size;
    }
}

struct Outcome {
    float loss = 0.0F;
    double ms_per_step = 0.0;
};

Outcome train(ProcessGroup& group, std::int64_t steps, const std::function<float()>& step) {
    Outcome outcome;
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
        outcome.loss = step();
    }
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    outcome.ms_per_step = elapsed.count() / static_cast<double>(steps);
    return outcome;
}

bool run(const Options& options, const regroup::Context& context) {
    const auto group = ProcessGroup::create(options.backend, context);

    Perceptron by_hand(options, group->device(), 100 + context.rank);
    const Outcome manual = train(*group, options.steps, [&] {
        const float loss = by_hand.forward_backward([](std::size_t) {});
        average_gradients(*group, by_hand);
        by_hand.apply_gradients();
        return loss;
    });

    Perceptron wrapped(options, group->device(), 100 + context.rank);
    std::vector<regroup::Parameter> parameters;
    for (std::size_t index = 0; index < wrapped.values.size(); ++index) {
        parameters.push_back(
            {wrapped.device_values[index].view(), wrapped.device_gradients[index].view()});
    }
    // Small buckets for a small model, so that the first is sent while others are computed.
    regroup::DistributedDataParallel ddp(*group, std::move(parameters), {},
                                         {.bucket_bytes = std::size_t{128} << 10U});
    const Outcome overlapped = train(*group, options.steps, [&] {
        const float loss = wrapped.forward_backward([&](std::size_t index) {
            wrapped.device_gradients[index].upload();
            ddp.gradient_ready(index);
        });
        ddp.finish_step();
        for (Floats& gradient : wrapped.device_gradients) {
            gradient.download();
        }
        wrapped.apply_gradients();
        return loss;
    });

    float difference = 0.0F;
    for (std::size_t index = 0; index < wrapped.values.size(); ++index) {
        const Matrix distance = wrapped.values[index] - by_hand.values[index];
        difference = std::max(difference, distance.cwiseAbs().maxCoeff());
    }
    std::printf("rank %u: loss %.4f by hand, %.4f by DistributedDataParallel\n", context.rank,
                static_cast<double>(manual.loss), static_cast<double>(overlapped.loss));
    if (context.is_main_process()) {
        std::printf(
            "ms per step: %.3f by hand, %.3f by DistributedDataParallel (%.2f times as fast",
            manual.ms_per_step, overlapped.ms_per_step,
            manual.ms_per_step / overlapped.ms_per_step);
        if (context.world_size > 1) {  // alone there is no communication
            std::printf(", %.0f %% of the last step's communication hidden",
                        100.0 * ddp.statistics().hidden());
        }
        std::printf("); largest difference of a parameter: %g\n", static_cast<double>(difference));
    }
    return difference <= 1e-4F;
}

}  // namespace

int main(int argc, char** argv) {
    Eigen::setNbThreads(1);  // One thread per rank.
    Options options;
    bool agrees = true;  // Also after --help.
    example::Flags flags("average_gradients",
                         "trains a perceptron twice: with averaging by hand, and with\n"
                         "DistributedDataParallel.");
    flags.add("--steps", options.steps, {1, 1'000'000}, "steps of each training");
    flags.add("--layers", options.layers, {1, 1'000}, "hidden layers");
    flags.add("--width", options.width, {1, 1 << 16}, "of a hidden layer");
    example::add_backend(flags, options.backend);
    const int code = example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        agrees = run(options, context);
    });
    return agrees ? code : 1;
}
