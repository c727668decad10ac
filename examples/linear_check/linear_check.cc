// SPDX-License-Identifier: Apache-2.0
//
// The smallest data-parallel program, and a check that a machine can run one:
//
//     regroup run --standalone --nproc-per-node=2 linear_check
//
// Every rank holds the same linear layer, 10 values in and 10 out, and draws its own batch. After
// one step of SGD on the mean squared error, the losses differ, since the data differ. The
// parameters are equal to the last bit, since the gradients were averaged. Exits with 1 if this
// check fails. With `--backend nccl` parameters and gradients lie on the ranks' GPUs, one each.

#include <regroup/context.h>
#include <regroup/cuda.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "device_vector.h"
#include "flags.h"

namespace {

using Floats = example::DeviceVector<float>;

constexpr std::size_t kWidth = 10;
constexpr std::size_t kBatch = 20;
constexpr float kLearningRate = 0.001F;

/// y = W x + b, or the gradients of W and b.
struct Linear {
    explicit Linear(const regroup::Device& device)
        : weight(kWidth * kWidth, device), bias(kWidth, device) {}

    Floats weight;  // [out, in]
    Floats bias;
};

float uniform(std::mt19937& random) {
    return static_cast<float>(random()) * 0x1p-31F - 1.0F;  // [-1, 1]
}

/// Forward and backward over a random batch: adds up the gradients and returns the loss.
double train_on_random_batch(const Linear& layer, std::mt19937& random, Linear& gradients) {
    constexpr float kScale = 1.0F / (kBatch * kWidth);
    const std::span<const float> weight = layer.weight.host();
    const std::span<float> by_weight = gradients.weight.host();
    double loss = 0.0;
    for (std::size_t sample = 0; sample < kBatch; ++sample) {
        std::array<float, kWidth> input{};
        std::ranges::generate(input, [&] { return uniform(random); });
        for (std::size_t row = 0; row < kWidth; ++row) {
            float output = layer.bias.host()[row];
            for (std::size_t column = 0; column < kWidth; ++column) {
                output += weight[row * kWidth + column] * input[column];
            }
            const float error = output - uniform(random);
            loss += static_cast<double>(error * error * kScale);
            const float slope = 2.0F * error * kScale;
            gradients.bias.host()[row] += slope;
            for (std::size_t column = 0; column < kWidth; ++column) {
                by_weight[row * kWidth + column] += slope * input[column];
            }
        }
    }
    return loss;
}

/// One step of SGD.
void apply(Floats& gradients, Floats& values) {
    gradients.download();
    for (std::size_t i = 0; i < values.size(); ++i) {
        values.host()[i] -= kLearningRate * gradients.host()[i];
    }
    values.upload();
}

bool check(const std::string& backend, const regroup::Context& context) {
    const auto group = regroup::ProcessGroup::create(backend, context);
    std::mt19937 random(1 + context.rank);
    Linear layer(group->device());
    Linear gradients(group->device());
    for (Floats* const values : {&layer.weight, &layer.bias}) {
        std::ranges::generate(values->host(), [&] { return uniform(random); });
        values->upload();
    }

    // Broadcasts the layer of rank 0 to every rank.
    regroup::DistributedDataParallel ddp(*group, {{layer.weight.view(), gradients.weight.view()},
                                                  {layer.bias.view(), gradients.bias.view()}});
    const bool started_equal = !ddp.find_replica_difference();
    layer.weight.download();
    layer.bias.download();
    const float before = layer.weight.host()[0];

    const double loss = train_on_random_batch(layer, random, gradients);
    gradients.bias.upload();
    ddp.gradient_ready(1);
    gradients.weight.upload();
    ddp.gradient_ready(0);
    ddp.finish_step();
    apply(gradients.weight, layer.weight);
    apply(gradients.bias, layer.bias);
    std::printf("rank %u of %u: loss %.6f\n", context.rank, context.world_size, loss);

    example::DeviceVector<double> mine(std::vector{loss}, group->device());
    example::DeviceVector<double> losses(context.world_size, group->device());
    group->all_gather(mine.view(), losses.view()).wait();
    losses.download();
    std::ranges::sort(losses.host());
    const bool losses_differ = std::ranges::adjacent_find(losses.host()) == losses.host().end();
    const bool equal = !ddp.find_replica_difference();
    const bool moved = layer.weight.host()[0] != before;
    if (context.is_main_process()) {
        std::printf(
            "replicas equal at the start: %s; losses differ: %s; parameters moved: %s; "
            "bit-identical after the step: %s\n",
            started_equal ? "yes" : "NO", losses_differ ? "yes" : "NO", moved ? "yes" : "NO",
            equal ? "yes" : "NO");
    }
    return started_equal && losses_differ && moved && equal;
}

}  // namespace

int main(int argc, char** argv) {
    std::string backend = "cpu";
    bool is_good = true;  // Also after --help.
    example::Flags flags("linear_check",
                         "takes one data-parallel step, and checks that the replicas agree.");
    example::add_backend(flags, backend);
    const int code = example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        is_good = check(backend, context);
    });
    return is_good ? code : 1;
}
