// SPDX-License-Identifier: Apache-2.0
//
// The smallest data-parallel program, and a check that a machine can run one:
//
//     regroup run --standalone --nproc-per-node=2 linear_check
//
// Every rank holds the same linear layer, 10 values in and 10 out, and draws its own batch. After
// one step of SGD on the mean squared error the losses differ, since the data did; the parameters
// do not, to the last bit, since the gradients were averaged. Exits with 1 if that is not so.

#include <regroup/context.h>
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

namespace {

constexpr std::size_t kWidth = 10;
constexpr std::size_t kBatch = 20;
constexpr float kLearningRate = 0.001F;

/// y = W x + b.
struct Linear {
    explicit Linear(std::mt19937& random) {
        std::ranges::generate(weight, [&] { return uniform(random); });
        std::ranges::generate(bias, [&] { return uniform(random); });
    }
    static float uniform(std::mt19937& random) {
        return static_cast<float>(random()) * 0x1p-31F - 1.0F;  // [-1, 1]
    }

    std::vector<float> weight = std::vector<float>(kWidth * kWidth);  // [out, in]
    std::vector<float> bias = std::vector<float>(kWidth);
};

/// Forward and backward over a random batch: adds up the gradients and returns the loss.
double train_on_random_batch(const Linear& layer, std::mt19937& random, float* by_weight,
                             float* by_bias) {
    constexpr float kScale = 1.0F / (kBatch * kWidth);
    double loss = 0.0;
    for (std::size_t sample = 0; sample < kBatch; ++sample) {
        std::array<float, kWidth> input{};
        std::ranges::generate(input, [&] { return Linear::uniform(random); });
        for (std::size_t row = 0; row < kWidth; ++row) {
            float output = layer.bias[row];
            for (std::size_t column = 0; column < kWidth; ++column) {
                output += layer.weight[row * kWidth + column] * input[column];
            }
            const float error = output - Linear::uniform(random);
            loss += static_cast<double>(error * error * kScale);
            const float slope = 2.0F * error * kScale;
            by_bias[row] += slope;
            for (std::size_t column = 0; column < kWidth; ++column) {
                by_weight[row * kWidth + column] += slope * input[column];
            }
        }
    }
    return loss;
}

int check(const regroup::Context& context) {
    const auto group = regroup::ProcessGroup::create("cpu", context);
    std::mt19937 random(1 + context.rank);
    Linear layer(random);
    const Linear initial = layer;

    // From here on every rank has the layer of rank 0.
    regroup::DistributedDataParallel ddp(*group,
                                         {{std::span(layer.weight)}, {std::span(layer.bias)}});
    const bool started_equal = !ddp.find_replica_difference();
    const double loss =
        train_on_random_batch(layer, random, static_cast<float*>(ddp.gradient(0).data),
                              static_cast<float*>(ddp.gradient(1).data));
    ddp.gradient_ready(1);
    ddp.gradient_ready(0);
    ddp.finish_step();
    const auto apply = [&](std::span<float> values, std::size_t index) {
        const auto* gradient = static_cast<const float*>(ddp.gradient(index).data);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] -= kLearningRate * gradient[i];
        }
    };
    apply(layer.weight, 0);
    apply(layer.bias, 1);
    std::printf("rank %u of %u: loss %.6f\n", context.rank, context.world_size, loss);

    std::vector<double> losses(context.world_size);
    group->all_gather(std::span<const double>(&loss, 1), std::span(losses)).wait();
    std::ranges::sort(losses);
    const bool losses_differ = std::ranges::adjacent_find(losses) == losses.end();
    const bool equal = !ddp.find_replica_difference();
    const bool moved = layer.weight != initial.weight;
    if (context.is_main_process()) {
        std::printf(
            "replicas equal at the start: %s; losses differ: %s; parameters moved: %s; "
            "bit-identical after the step: %s\n",
            started_equal ? "yes" : "NO", losses_differ ? "yes" : "NO", moved ? "yes" : "NO",
            equal ? "yes" : "NO");
    }
    return started_equal && losses_differ && moved && equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** /*argv*/) {
    if (argc > 1) {
        std::fprintf(stderr,
                     "linear_check: it takes no arguments; start it under a launcher: "
                     "regroup run --standalone --nproc-per-node=2 linear_check\n");
        return 2;
    }
    regroup::Context context;
    try {
        context = regroup::Context::from_environment();
        return check(context);
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "rank %u: %s\n", context.rank, error.what());
        return 1;
    }
}
