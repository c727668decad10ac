// SPDX-License-Identifier: Apache-2.0
//
// gradients: what DistributedDataParallel does, checked and compared with the same by hand.
//
//     regroup run --standalone --nproc-per-node=2 gradients linear_check
//     regroup run --standalone --nproc-per-node=2 gradients average --steps 100
//
// `linear_check` is the smallest data-parallel program, and a check that a machine can run one. One
// linear layer takes one step of SGD. The losses of the ranks differ, since their data differ. The
// parameters are equal to the last bit, since the gradients were averaged.
//
// `average` trains a perceptron by hand with one function, `average_gradients`: after the backward
// pass, each gradient is summed over the ranks and divided by their number. This is the baseline of
// data parallelism: no communication overlaps with the backward pass, and each tensor needs a
// collective. Then DistributedDataParallel trains the same model, from the same start on the same
// data. On two ranks the results agree to the last bit. On more, they agree up to the rounding of
// sums in another order.
//
// Both exit with 1 if a check fails. With `--backend nccl` parameters and gradients lie on the
// ranks' GPUs. The model is computed on the host, so the time is mostly copying.

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::Context;
using regroup::DistributedDataParallel;
using regroup::ProcessGroup;
using Floats = example::DeviceVector<float>;

/// A linear layer on a batch: y = x W + b.
struct Layer {
    Layer(std::size_t in, std::size_t out, const regroup::Device& device)
        : in(in),
          out(out),
          weight(in * out, device),
          bias(out, device),
          weight_gradient(in * out, device),
          bias_gradient(out, device) {}

    std::size_t in;
    std::size_t out;
    Floats weight;  // [in, out]
    Floats bias;
    Floats weight_gradient;
    Floats bias_gradient;
};

/// The row of a sample in [batch, width].
template <class Value>
std::span<Value> row(std::span<Value> values, std::size_t sample, std::size_t width) {
    return values.subspan(sample * width, width);
}

struct Sizes {
    std::size_t inputs;
    std::size_t hidden_layers;
    std::size_t width;
    std::size_t outputs;
    std::size_t batch;
};

/// Hidden layers with tanh and a linear output, trained on the mean squared error.
class Perceptron {
   public:
    Perceptron(const Sizes& sizes, const regroup::Device& device, std::uint32_t value_seed,
               std::uint32_t data_seed)
        : sizes_(sizes), random_(value_seed) {
        std::size_t in = sizes.inputs;
        for (std::size_t layer = 0; layer <= sizes.hidden_layers; ++layer) {
            const std::size_t out = layer == sizes.hidden_layers ? sizes.outputs : sizes.width;
            Floats& weight = layers_.emplace_back(in, out, device).weight;
            const float scale = std::sqrt(3.0F / static_cast<float>(in));
            std::ranges::generate(weight.host(), [&] { return scale * uniform(); });
            weight.upload();
            in = out;
        }
        activations_.resize(layers_.size() + 1);
        random_.seed(data_seed);
    }

    /// Weight and bias of each layer.
    [[nodiscard]] std::vector<regroup::Parameter> parameters() {
        std::vector<regroup::Parameter> all;
        for (Layer& layer : layers_) {
            all.push_back({layer.weight.view(), layer.weight_gradient.view()});
            all.push_back({layer.bias.view(), layer.bias_gradient.view()});
        }
        return all;
    }

    /// Draws a batch, computes the gradients from the last layer to the first, and calls
    /// `ready(index of the parameter)` when each is final. Returns the loss.
    float forward_backward(const std::function<void(std::size_t)>& ready) {
        forward();
        // The target of all outputs is the mean of the inputs' squares.
        std::vector<float> slopes = activations_.back();
        const std::size_t outputs = sizes_.outputs;
        const float scale = 1.0F / static_cast<float>(slopes.size());
        float loss = 0.0F;
        for (std::size_t i = 0; i < slopes.size(); ++i) {
            float target = 0.0F;
            for (const float input : row(std::span(activations_[0]), i / outputs, sizes_.inputs)) {
                target += input * input / static_cast<float>(sizes_.inputs);
            }
            const float error = slopes[i] - target;
            loss += error * error * scale;
            slopes[i] = 2.0F * error * scale;
        }
        for (std::size_t index = layers_.size(); index-- > 0;) {
            Layer& layer = layers_[index];
            add_up(layer, activations_[index], slopes);
            layer.bias_gradient.upload();
            ready(2 * index + 1);
            layer.weight_gradient.upload();
            ready(2 * index);
            if (index > 0) {
                slopes = slopes_of_inputs(layer, activations_[index], slopes);
            }
        }
        return loss;
    }

    /// One step of SGD with the gradients on the device.
    void apply_gradients(float learning_rate) {
        for (Layer& layer : layers_) {
            apply(layer.weight_gradient, layer.weight, learning_rate);
            apply(layer.bias_gradient, layer.bias, learning_rate);
        }
    }

    /// Divides the gradients on the device.
    void divide_gradients(float divisor) {
        for (Layer& layer : layers_) {
            for (Floats* const gradient : {&layer.weight_gradient, &layer.bias_gradient}) {
                gradient->download();
                for (float& value : gradient->host()) {
                    value /= divisor;
                }
                gradient->upload();
            }
        }
    }

    /// After something wrote the parameters on the device.
    void download() {
        for (Layer& layer : layers_) {
            layer.weight.download();
            layer.bias.download();
        }
    }

    [[nodiscard]] float first_value() const { return layers_[0].weight.host()[0]; }
    [[nodiscard]] float largest_difference(const Perceptron& other) const {
        float largest = 0.0F;
        for (std::size_t index = 0; index < layers_.size(); ++index) {
            const std::span<const float> mine = layers_[index].weight.host();
            const std::span<const float> its = other.layers_[index].weight.host();
            for (std::size_t i = 0; i < mine.size(); ++i) {
                largest = std::max(largest, std::abs(mine[i] - its[i]));
            }
        }
        return largest;
    }

   private:
    using Values = std::vector<float>;  // [batch, width of the layer]

    float uniform() { return static_cast<float>(random_()) * 0x1p-31F - 1.0F; }

    void forward() {
        activations_[0].resize(sizes_.batch * sizes_.inputs);
        std::ranges::generate(activations_[0], [&] { return uniform(); });
        for (std::size_t index = 0; index < layers_.size(); ++index) {
            const Layer& layer = layers_[index];
            const std::span<const float> weight = layer.weight.host();
            activations_[index + 1].resize(sizes_.batch * layer.out);
            for (std::size_t sample = 0; sample < sizes_.batch; ++sample) {
                const auto input = row(std::span(activations_[index]), sample, layer.in);
                const auto output = row(std::span(activations_[index + 1]), sample, layer.out);
                std::ranges::copy(layer.bias.host(), output.begin());
                for (std::size_t i = 0; i < layer.in; ++i) {
                    for (std::size_t j = 0; j < layer.out; ++j) {
                        output[j] += input[i] * weight[i * layer.out + j];
                    }
                }
                if (index + 1 < layers_.size()) {
                    std::ranges::transform(output, output.begin(),
                                           [](float value) { return std::tanh(value); });
                }
            }
        }
    }

    void add_up(Layer& layer, const Values& inputs, const Values& slopes) const {
        const std::span<float> by_weight = layer.weight_gradient.host();
        const std::span<float> by_bias = layer.bias_gradient.host();
        std::ranges::fill(by_weight, 0.0F);
        std::ranges::fill(by_bias, 0.0F);
        for (std::size_t sample = 0; sample < sizes_.batch; ++sample) {
            const auto input = row(std::span(inputs), sample, layer.in);
            const auto slope = row(std::span(slopes), sample, layer.out);
            for (std::size_t j = 0; j < layer.out; ++j) {
                by_bias[j] += slope[j];
            }
            for (std::size_t i = 0; i < layer.in; ++i) {
                for (std::size_t j = 0; j < layer.out; ++j) {
                    by_weight[i * layer.out + j] += input[i] * slope[j];
                }
            }
        }
    }

    [[nodiscard]] Values slopes_of_inputs(const Layer& layer, const Values& inputs,
                                          const Values& slopes) const {
        const std::span<const float> weight = layer.weight.host();
        Values result(inputs.size());
        for (std::size_t i = 0; i < result.size(); ++i) {
            const auto slope = row(std::span(slopes), i / layer.in, layer.out);
            const auto weights = row(weight, i % layer.in, layer.out);
            for (std::size_t j = 0; j < layer.out; ++j) {
                result[i] += slope[j] * weights[j];
            }
            result[i] *= 1.0F - inputs[i] * inputs[i];  // of tanh
        }
        return result;
    }

    static void apply(Floats& gradient, Floats& values, float learning_rate) {
        gradient.download();
        for (std::size_t i = 0; i < values.size(); ++i) {
            values.host()[i] -= learning_rate * gradient.host()[i];
        }
        values.upload();
    }

    const Sizes sizes_;
    std::mt19937 random_;
    std::vector<Layer> layers_;
    std::vector<Values> activations_;
};

// ---------------------------------------------------------------------------------------------------

bool check(const std::string& backend, const Context& context) {
    const auto group = ProcessGroup::create(backend, context);
    Perceptron layer({.inputs = 10, .hidden_layers = 0, .width = 0, .outputs = 10, .batch = 20},
                     group->device(), 1 + context.rank, 100 + context.rank);
    // Broadcasts the layer of rank 0 to every rank.
    DistributedDataParallel ddp(*group, layer.parameters());
    layer.download();
    const bool started_equal = !ddp.find_replica_difference();
    const float before = layer.first_value();

    const double loss =
        layer.forward_backward([&](std::size_t index) { ddp.gradient_ready(index); });
    ddp.finish_step();
    layer.apply_gradients(0.001F);
    std::printf("rank %u of %u: loss %.6f\n", context.rank, context.world_size, loss);

    example::DeviceVector<double> mine(std::vector{loss}, group->device());
    example::DeviceVector<double> losses(context.world_size, group->device());
    group->all_gather(mine.view(), losses.view()).wait();
    losses.download();
    std::ranges::sort(losses.host());
    const bool losses_differ = std::ranges::adjacent_find(losses.host()) == losses.host().end();
    const bool equal = !ddp.find_replica_difference();
    const bool moved = layer.first_value() != before;
    if (context.is_main_process()) {
        std::printf(
            "replicas equal at the start: %s; losses differ: %s; parameters moved: %s; "
            "bit-identical after the step: %s\n",
            started_equal ? "yes" : "NO", losses_differ ? "yes" : "NO", moved ? "yes" : "NO",
            equal ? "yes" : "NO");
    }
    return started_equal && losses_differ && moved && equal;
}

int linear_check(int argc, char** argv) {
    std::string backend = "cpu";
    bool is_good = true;  // Also after --help.
    example::Flags flags("gradients linear_check",
                         "takes one data-parallel step, and checks that the replicas agree.");
    flags.add_backend(backend);
    const int code = example::run_main(
        flags, argc, argv, [&](const Context& context) { is_good = check(backend, context); });
    return is_good ? code : 1;
}

// ---------------------------------------------------------------------------------------------------

constexpr float kLearningRate = 0.05F;

struct Options {
    std::int64_t steps = 100;
    std::int64_t layers = 8;
    std::int64_t width = 128;
    std::string backend = "cpu";
};

/// Synchronous SGD by hand.
void average_gradients(ProcessGroup& group, Perceptron& model) {
    for (const regroup::Parameter& parameter : model.parameters()) {
        group.all_reduce(parameter.gradient, regroup::ReduceOp::sum).wait();
    }
    model.divide_gradients(static_cast<float>(group.world_size()));
}

struct Outcome {
    double loss = 0.0;
    double ms_per_step = 0.0;
};

Outcome train(ProcessGroup& group, std::int64_t steps, const std::function<float()>& step) {
    Outcome outcome;
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
        outcome.loss = double{step()};
    }
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    outcome.ms_per_step = elapsed.count() / static_cast<double>(steps);
    return outcome;
}

bool compare(const Options& options, const Context& context) {
    const auto group = ProcessGroup::create(options.backend, context);
    const Sizes sizes{.inputs = 64,
                      .hidden_layers = static_cast<std::size_t>(options.layers),
                      .width = static_cast<std::size_t>(options.width),
                      .outputs = 1,
                      .batch = 32};

    Perceptron by_hand(sizes, group->device(), 1, 100 + context.rank);
    const Outcome manual = train(*group, options.steps, [&] {
        const float loss = by_hand.forward_backward([](std::size_t) {});
        average_gradients(*group, by_hand);
        by_hand.apply_gradients(kLearningRate);
        return loss;
    });

    Perceptron wrapped(sizes, group->device(), 1, 100 + context.rank);
    // Small buckets for a small model, so that the first is sent while others are computed.
    DistributedDataParallel ddp(*group, wrapped.parameters(), {},
                                {.bucket_bytes = std::size_t{128} << 10U});
    const Outcome overlapped = train(*group, options.steps, [&] {
        const float loss =
            wrapped.forward_backward([&](std::size_t index) { ddp.gradient_ready(index); });
        ddp.finish_step();
        wrapped.apply_gradients(kLearningRate);
        return loss;
    });

    const float difference = wrapped.largest_difference(by_hand);
    std::printf("rank %u: loss %.4f by hand, %.4f by DistributedDataParallel\n", context.rank,
                manual.loss, overlapped.loss);
    if (context.is_main_process()) {
        std::printf(
            "ms per step: %.3f by hand, %.3f by DistributedDataParallel (%.2f times as fast",
            manual.ms_per_step, overlapped.ms_per_step,
            manual.ms_per_step / overlapped.ms_per_step);
        if (context.world_size > 1) {  // alone there is no communication
            std::printf(", %.0f %% of the last step's communication hidden",
                        100.0 * ddp.statistics().hidden());
        }
        std::printf("); largest difference of a parameter: %g\n", double{difference});
    }
    return difference <= 1e-4F;
}

int average(int argc, char** argv) {
    Options options;
    bool agrees = true;  // Also after --help.
    example::Flags flags("gradients average",
                         "trains a perceptron twice: with averaging by hand, and with\n"
                         "DistributedDataParallel.");
    flags.add("--steps", options.steps, {1, 1'000'000}, "steps of each training");
    flags.add("--layers", options.layers, {1, 1'000}, "hidden layers");
    flags.add("--width", options.width, {1, 1 << 16}, "of a hidden layer");
    flags.add_backend(options.backend);
    const int code = example::run_main(
        flags, argc, argv, [&](const Context& context) { agrees = compare(options, context); });
    return agrees ? code : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run_command(
        "gradients",
        {{"linear_check", "the smallest program with DistributedDataParallel; it checks itself",
          linear_check},
         {"average", "synchronous SGD by hand, compared with DistributedDataParallel", average}},
        argc, argv);
}
