// SPDX-License-Identifier: Apache-2.0
//
// A module of libtorch, trained data-parallel:
//
//     regroup run --standalone --nproc-per-node=2 torch_ddp
//
// Each rank trains on its share of every batch. Rank 0 trains a second replica alone, on whole
// batches, and compares. These parameters must agree up to rounding. The ranks' parameters must
// agree to the last bit. Exits with 1 if they do not.

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/process_group.h>
#include <regroup/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "flags.h"

namespace {

constexpr std::int64_t kBatch = 24;  // of all ranks together
constexpr std::int64_t kInputs = 16;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kOutputs = 4;
constexpr int kSteps = 50;
constexpr double kLearningRate = 0.1;
constexpr double kTolerance = 1e-6;

struct NetImpl : torch::nn::Module {
    NetImpl()
        : hidden(register_module("hidden", torch::nn::Linear(kInputs, kHidden))),
          output(register_module("output", torch::nn::Linear(kHidden, kOutputs))) {}

    at::Tensor forward(const at::Tensor& input) { return output(at::tanh(hidden(input))); }

    torch::nn::Linear hidden;
    torch::nn::Linear output;
};
TORCH_MODULE(Net);

struct Batch {
    at::Tensor input;
    at::Tensor target;
};

Batch make_batch() {
    const at::Tensor input = at::randn({kBatch, kInputs});
    return {input, input.slice(1, 0, kOutputs).sin()};
}

template <class Model>
double train_step(Model& model, torch::optim::SGD& optimizer, const Batch& batch) {
    optimizer.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::mse_loss(model.forward(batch.input), batch.target);
    loss.backward();
    optimizer.step();
    return loss.item<double>();
}

bool run(const regroup::Context& context) {
    if (kBatch % context.world_size != 0) {
        throw example::UsageError(std::to_string(context.world_size) +
                                  " ranks cannot share batches of " + std::to_string(kBatch) +
                                  " equally");
    }
    const auto group = regroup::ProcessGroup::create("cpu", context);
    torch::manual_seed(1 + context.rank);
    Net net;
    regroup::torch::DistributedDataParallel ddp(net, *group);  // broadcasts rank 0's parameters
    Net whole;
    {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
            whole->parameters()[i].copy_(net->parameters()[i]);
        }
    }
    torch::optim::SGD optimizer(net->parameters(), kLearningRate);
    torch::optim::SGD whole_optimizer(whole->parameters(), kLearningRate);

    torch::manual_seed(42);  // the same batches everywhere
    const std::int64_t share = kBatch / context.world_size;
    const std::int64_t first = share * context.rank;
    double loss = 0.0;
    double whole_loss = 0.0;
    for (int step = 0; step < kSteps; ++step) {
        const Batch batch = make_batch();
        loss = train_step(ddp, optimizer,
                          {batch.input.slice(0, first, first + share),
                           batch.target.slice(0, first, first + share)});
        whole_loss = train_step(*whole, whole_optimizer, batch);
    }

    double difference = 0.0;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        const at::Tensor distance = (net->parameters()[i] - whole->parameters()[i]).abs().max();
        difference = std::max(difference, distance.item<double>());
    }
    const bool identical = !ddp.data_parallel().find_replica_difference();
    std::printf("rank %u of %u: loss %.6f on its share, %.6f on whole batches\n", context.rank,
                context.world_size, loss, whole_loss);
    if (context.is_main_process()) {
        std::printf("largest difference from training alone: %.2g; replicas bit-identical: %s\n",
                    difference, identical ? "yes" : "NO");
    }
    return difference <= kTolerance && identical;
}

}  // namespace

int main(int argc, char** argv) {
    bool agrees = true;  // Also after --help.
    const example::Flags flags(
        "torch_ddp",
        "trains a module of libtorch, data-parallel, and compares it with one\n"
        "that is trained alone.");
    const int code = example::run_main(
        flags, argc, argv, [&](const regroup::Context& context) { agrees = run(context); });
    return agrees ? code : 1;
}
