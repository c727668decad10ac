// SPDX-License-Identifier: Apache-2.0
//
// Synchronous SGD by hand, and what DistributedDataParallel makes of it:
//
//     regroup run --standalone --nproc-per-node=2 average_gradients --steps 100
//
// By hand it is one function, `average_gradients`: after the backward pass, each gradient is summed
// over the ranks and divided by their number. That is all of data parallelism, and the baseline for
// everything else: nothing travels while the backward pass computes, and each tensor pays for a
// collective of its own. The same model is then trained by DistributedDataParallel, from the same
// start on the same data, and both times are printed. The results agree up to the rounding of sums
// that are taken in another order; on two ranks, to the last bit.

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <Eigen/Core>

namespace {

using regroup::ProcessGroup;
using regroup::ReduceOp;
using regroup::TensorView;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Eigen::Index kInputs = 64;
constexpr Eigen::Index kBatch = 32;
constexpr float kLearningRate = 0.05F;

struct Options {
    int steps = 100;
    int layers = 8;
    int width = 128;
};

TensorView view(Matrix& matrix) {
    return std::span(matrix.data(), static_cast<std::size_t>(matrix.size()));
}

/// `layers` hidden layers with tanh, one linear output; learns the sum of its inputs' squares.
class Perceptron {
   public:
    Perceptron(const Options& options, std::uint32_t data_seed) : random_(1) {
        Eigen::Index inputs = kInputs;
        for (int layer = 0; layer <= options.layers; ++layer) {
            const Eigen::Index outputs = layer == options.layers ? 1 : options.width;
            const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
            values.push_back(scale * uniform(inputs, outputs));
            values.push_back(Matrix::Zero(1, outputs));
            inputs = outputs;
        }
        for (const Matrix& value : values) {
            gradients.push_back(Matrix::Zero(value.rows(), value.cols()));
        }
        activations_.resize(values.size() / 2 + 1);
        random_.seed(data_seed);
    }

    /// Draws a batch, computes the gradients from the last layer to the first, and calls
    /// `ready(index)` as each is final. Returns the loss.
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

    std::vector<Matrix> values;  // weight [in, out] and bias [1, out] of each layer
    std::vector<Matrix> gradients;

   private:
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

/// The whole of synchronous SGD by hand.
void average_gradients(ProcessGroup& group, Perceptron& model) {
    const auto world_size = static_cast<float>(group.world_size());
    for (Matrix& gradient : model.gradients) {
        group.all_reduce(view(gradient), ReduceOp::sum).wait();
        gradient /= world_size;
    }
}

struct Outcome {
    float loss = 0.0F;
    double ms_per_step = 0.0;
};

Outcome train(ProcessGroup& group, int steps, const std::function<float()>& step) {
    Outcome outcome;
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
        outcome.loss = step();
    }
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    outcome.ms_per_step = elapsed.count() / steps;
    return outcome;
}

int run(const Options& options, const regroup::Context& context) {
    const auto group = ProcessGroup::create("cpu", context);

    Perceptron by_hand(options, 100 + context.rank);
    const Outcome manual = train(*group, options.steps, [&] {
        const float loss = by_hand.forward_backward([](std::size_t) {});
        average_gradients(*group, by_hand);
        by_hand.apply_gradients();
        return loss;
    });

    Perceptron wrapped(options, 100 + context.rank);
    std::vector<regroup::Parameter> parameters;
    for (std::size_t index = 0; index < wrapped.values.size(); ++index) {
        parameters.push_back({view(wrapped.values[index]), view(wrapped.gradients[index])});
    }
    // Small buckets for a small model, so that the first is on its way while others are computed.
    regroup::DistributedDataParallel ddp(*group, std::move(parameters), {},
                                         {.bucket_bytes = std::size_t{128} << 10U});
    const Outcome overlapped = train(*group, options.steps, [&] {
        const float loss =
            wrapped.forward_backward([&ddp](std::size_t index) { ddp.gradient_ready(index); });
        ddp.finish_step();
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
            "ms per step: %.3f by hand, %.3f by DistributedDataParallel (%.2f times as "
            "fast, %.0f %% of the last step's communication hidden); largest difference "
            "of a parameter: %g\n",
            manual.ms_per_step, overlapped.ms_per_step, manual.ms_per_step / overlapped.ms_per_step,
            100.0 * ddp.statistics().hidden(), static_cast<double>(difference));
    }
    return difference <= 1e-4F ? 0 : 1;
}

constexpr const char* kUsage =
    "usage: average_gradients [--steps N] [--layers N] [--width N]\n"
    "Trains a perceptron twice: with averaging by hand, and with DistributedDataParallel.\n";

/// False if the arguments make no sense, which it says.
bool parse(std::span<char*> arguments, Options& options) {
    for (std::size_t i = 1; i < arguments.size(); i += 2) {
        const std::string_view name = arguments[i];
        int* const target = name == "--steps"    ? &options.steps
                            : name == "--layers" ? &options.layers
                            : name == "--width"  ? &options.width
                                                 : nullptr;
        const std::string_view text = i + 1 < arguments.size() ? arguments[i + 1] : "";
        int value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (target == nullptr || error != std::errc() || end != text.data() + text.size() ||
            value < 1 || value > 1000000) {
            std::fprintf(stderr, "average_gradients: %s\n%s",
                         (target == nullptr ? "there is no flag " + std::string(name)
                                            : std::string(name) + " takes a number from 1 on")
                             .c_str(),
                         kUsage);
            return false;
        }
        *target = value;
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    Eigen::setNbThreads(1);  // The ranks are the parallelism.
    const std::span arguments(argv, static_cast<std::size_t>(argc));
    if (argc == 2 && std::string_view(argv[1]) == "--help") {
        std::fputs(kUsage, stdout);
        return 0;
    }
    Options options;
    if (!parse(arguments, options)) {
        return 2;
    }
    regroup::Context context;
    try {
        context = regroup::Context::from_environment();
        return run(options, context);
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "rank %u: %s\n", context.rank, error.what());
        return 1;
    }
}
