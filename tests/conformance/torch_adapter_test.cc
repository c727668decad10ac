// SPDX-License-Identifier: Apache-2.0
#include <regroup/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "worker_sdk/src/elastic/loop.h"

// Outside of namespace regroup, so that `torch` is libtorch.
namespace models {

// A sum by way of one of two branches, a parameter that is never used, one that is not trained, and
// a count that is none.
struct ForkImpl : torch::nn::Module {
    ForkImpl()
        : left(register_parameter("left", at::ones({3}))),
          right(register_parameter("right", at::ones({2, 2}))),
          never(register_parameter("never", at::ones({1}))),
          frozen(register_parameter("frozen", at::ones({1}), false)),
          count(register_buffer("count", at::zeros({1}, at::kLong))) {}

    at::Tensor forward(bool use_left, double factor) {
        return factor * (use_left ? left.sum() : right.sum()) * frozen.sum();
    }

    at::Tensor left;
    at::Tensor right;
    at::Tensor never;
    at::Tensor frozen;
    at::Tensor count;
};
TORCH_MODULE(Fork);

/// A layer with running means.
struct NormImpl : torch::nn::Module {
    NormImpl()
        : layer(register_module("layer", torch::nn::Linear(4, 3))),
          norm(register_module("norm", torch::nn::BatchNorm1d(3))) {}

    at::Tensor forward(const at::Tensor& input) { return norm(layer(input)).pow(2).sum(); }

    torch::nn::Linear layer;
    torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Norm);

/// Passes its input on, and fails on the way back.
struct Thrower : torch::autograd::Function<Thrower> {
    static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                              const at::Tensor& input) {
        return input.clone();
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::tensor_list& /*outputs*/) {
        throw std::runtime_error("not this way");
    }
};

}  // namespace models

namespace regroup {
namespace {

using models::Fork;
using testing::error_of;
using ::testing::HasSubstr;
using testing::run_ranks;

DataParallelOptions with_unused() {
    DataParallelOptions options = torch::default_options();
    options.unused_parameters = true;
    return options;
}

double first_of(const at::Tensor& tensor) {
    return tensor.flatten()[0].item<double>();
}

bool is_in(const at::Tensor& tensor, const Buffer& memory) {
    const auto* data = static_cast<const std::byte*>(tensor.data_ptr());
    const auto* begin = static_cast<const std::byte*>(memory.data);
    return data >= begin && data < begin + memory.bytes;
}

TEST(TorchAdapter, GradientsAreViewsIntoBucketsAfterEitherKindOfClearing) {
    run_ranks(2, [](ProcessGroup& group) {
        ::torch::nn::Linear layer(4, 3);
        torch::DistributedDataParallel ddp(layer, group);
        ::torch::optim::SGD optimizer(layer->parameters(), 0.1);
        for (const bool to_none : {true, false, true, true}) {
            for (const at::Tensor& parameter : layer->parameters()) {
                if (to_none) {
                    parameter.mutable_grad() = at::Tensor();
                } else {
                    parameter.mutable_grad().zero_();
                }
            }
            const auto mine = static_cast<double>(1 + group.rank());
            (ddp(at::ones({1, 4})) * mine).sum().backward();
            EXPECT_EQ(first_of(layer->weight.grad()), 1.5);
            EXPECT_EQ(first_of(layer->bias.grad()), 1.5);
            EXPECT_TRUE(is_in(layer->weight.grad(), ddp.data_parallel().gradient_memory()));
            EXPECT_TRUE(is_in(layer->bias.grad(), ddp.data_parallel().gradient_memory()));
            optimizer.step();
        }
        EXPECT_EQ(ddp.data_parallel().statistics().step, 4U);
        EXPECT_EQ(ddp.data_parallel().find_replica_difference(), std::nullopt);
    });
}

TEST(TorchAdapter, GradientsAddUpWithoutSynchronisation) {
    run_ranks(2, [](ProcessGroup& group) {
        ::torch::nn::Linear layer(2, 1);
        torch::DistributedDataParallel ddp(layer, group);
        const auto backward = [&](double factor) {
            (ddp(at::ones({1, 2})) * factor).sum().backward();
        };
        for (int step = 0; step < 2; ++step) {
            layer->zero_grad();
            const auto mine = static_cast<double>(group.rank());
            {
                const auto guard = ddp.no_sync();
                backward(mine);
                backward(10.0 * mine);
                EXPECT_EQ(first_of(layer->weight.grad()), 11.0 * mine);
            }
            backward(100.0);
            EXPECT_EQ(first_of(layer->weight.grad()), 105.5);
        }
    });
}

// The last operation is differentiated first, so the bias's gradient arrives before the exception.
TEST(TorchAdapter, FailedBackwardWithoutSynchronisationHasNoEffect) {
    run_ranks(2, [](ProcessGroup& group) {
        ::torch::nn::Linear layer(2, 1);
        torch::DistributedDataParallel ddp(layer, group);
        {
            const auto guard = ddp.no_sync();
            const at::Tensor fails = models::Thrower::apply(layer->weight).sum();
            EXPECT_ANY_THROW((fails + layer->bias.sum()).backward());
        }
        EXPECT_EQ(first_of(layer->bias.grad()), 1.0);
        layer->zero_grad();
        const auto mine = static_cast<double>(group.rank());
        (ddp(at::ones({1, 2})) * mine).sum().backward();
        EXPECT_EQ(first_of(layer->weight.grad()), 0.5);
        EXPECT_EQ(first_of(layer->bias.grad()), 0.5);
    });
}

// In the first step both ranks take the left branch, in the second each another one.
TEST(TorchAdapter, ParametersMayBeUnused) {
    run_ranks(2, [](ProcessGroup& group) {
        Fork fork;
        torch::DistributedDataParallel ddp(fork, group, with_unused());
        ddp.forward(true, 2.0).backward();
        EXPECT_EQ(first_of(fork->left.grad()), 2.0);
        EXPECT_FALSE(fork->right.grad().defined());
        EXPECT_FALSE(fork->never.grad().defined());

        fork->zero_grad();
        ddp.forward(group.rank() == 0, 4.0).backward();
        EXPECT_EQ(first_of(fork->left.grad()), 2.0);
        EXPECT_EQ(first_of(fork->right.grad()), 2.0);
        EXPECT_FALSE(fork->never.grad().defined());
        EXPECT_FALSE(fork->frozen.grad().defined());
    });
}

TEST(TorchAdapter, BuffersFollowRankZero) {
    run_ranks(2, [](ProcessGroup& group) {
        Fork fork;
        fork->count += 5 + static_cast<std::int64_t>(group.rank());
        torch::DistributedDataParallel ddp(fork, group, with_unused());
        EXPECT_EQ(fork->count.item<std::int64_t>(), 5);
        fork->count += static_cast<std::int64_t>(group.rank());
        ddp.forward(true, 1.0).backward();
        EXPECT_EQ(fork->count.item<std::int64_t>(), 5);
    });
}

TEST(TorchAdapter, GradientsOutliveTheWrapper) {
    run_ranks(1, [](ProcessGroup& group) {
        ::torch::nn::Linear layer(2, 1);
        {
            torch::DistributedDataParallel ddp(layer, group);
            ddp(at::ones({1, 2})).sum().backward();
        }
        EXPECT_EQ(first_of(layer->weight.grad()), 1.0);
        layer->zero_grad();
        layer(at::ones({1, 2})).sum().backward();  // Its hooks do nothing now.
        EXPECT_EQ(first_of(layer->weight.grad()), 1.0);
    });
}

// ---- The state of an ElasticLoop.

using Optimizer = std::unique_ptr<::torch::optim::Optimizer>;
using MakeOptimizer = std::function<Optimizer(const std::vector<at::Tensor>&)>;

/// One of each kind, with all that it may keep.
std::vector<MakeOptimizer> optimizers() {
    namespace optim = ::torch::optim;
    return {
        [](const auto& parameters) {
            return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
        },
        [](const auto& parameters) {
            return std::make_unique<optim::Adam>(parameters, optim::AdamOptions().amsgrad(true));
        },
        [](const auto& parameters) { return std::make_unique<optim::AdamW>(parameters); },
        [](const auto& parameters) {
            return std::make_unique<optim::RMSprop>(
                parameters, optim::RMSpropOptions().momentum(0.9).centered(true));
        },
        [](const auto& parameters) { return std::make_unique<optim::Adagrad>(parameters); },
    };
}

/// A model, which begins with `value` everywhere, and its optimizer.
struct Trained {
    models::Norm net;
    Optimizer optimizer;

    Trained(const MakeOptimizer& make, double value) : optimizer(make(net->parameters())) {
        const at::NoGradGuard no_grad;
        double next = value;
        for (const at::Tensor& parameter : net->parameters()) {
            parameter.copy_(at::linspace(next, next + 1, parameter.numel()).view_as(parameter));
            next += 0.5;
        }
    }
    void backward(std::uint64_t step) {
        optimizer->zero_grad();
        net->forward(at::arange(8.0).view({2, 4}).mul(1.0 + static_cast<double>(step)).sin())
            .backward();
    }
    void train(std::uint64_t from, std::uint64_t to) {
        for (std::uint64_t step = from; step < to; ++step) {
            backward(step);
            optimizer->step();
        }
    }
    [[nodiscard]] bool equals(const Trained& other) const {
        const auto same = [](const auto& mine, const auto& theirs) {
            return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                              [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
        };
        return same(net->parameters(), other.net->parameters()) &&
               same(net->buffers(), other.net->buffers());
    }
};

/// Runs `body` with the loop of each of two ranks.
void run_loops(const std::function<void(ElasticLoop&, std::uint32_t rank)>& body) {
    const testing::World world(2);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < world.size; ++rank) {
        threads.emplace_back([&, rank] {
            const auto loop = elastic::Loop::make(
                {.timeout = testing::kPatience, .compare_every = 1},
                testing::context_of_rank(rank, world.size, world.store), nullptr);
            body(*loop, rank);
        });
    }
}

ElasticCallbacks trains_up_to(Trained& model, std::uint64_t steps) {
    return {.on_step = [&model, steps](ElasticStep& step) {
        if (step.number() == steps) {
            return step.finish();
        }
        model.backward(step.number());
        step.commit([&] { model.optimizer->step(); });
    }};
}

TEST(TorchElasticState, NewRankTrainsOnWithTheOptimizerOfTheOther) {
    for (const MakeOptimizer& make : optimizers()) {
        Trained alone(make, 1);
        alone.train(0, 5);
        run_loops([&](ElasticLoop& loop, std::uint32_t rank) {
            Trained mine(make, rank + 1.0);
            if (rank == 0) {
                mine.train(0, 3);
                loop.resume_at(3, 0);
            }
            torch::register_state(loop, *mine.net, *mine.optimizer);
            EXPECT_EQ(loop.run(trains_up_to(mine, 5)), Ending::finished);
            EXPECT_TRUE(mine.equals(alone)) << "rank " << rank;
        });
    }
}

TEST(TorchElasticState, StateThatIsRegisteredBeforeTheFirstStepChangesNoBit) {
    for (const MakeOptimizer& make : optimizers()) {
        Trained alone(make, 1);
        alone.train(0, 4);
        run_loops([&](ElasticLoop& loop, std::uint32_t /*rank*/) {
            Trained mine(make, 1);
            torch::register_state(loop, *mine.net, *mine.optimizer, "model.");
            EXPECT_EQ(loop.run(trains_up_to(mine, 4)), Ending::finished);
            EXPECT_TRUE(mine.equals(alone));
        });
    }
}

TEST(TorchElasticState, DifferenceIsNamedLikeTheTensor) {
    run_loops([](ElasticLoop& loop, std::uint32_t rank) {
        Trained mine(optimizers()[1], 1);
        torch::register_state(loop, *mine.net, *mine.optimizer);
        const auto error = error_of([&] {
            (void)loop.run({.on_step = [&](ElasticStep& step) {
                mine.backward(rank);  // Another gradient on each rank.
                mine.net->layer->weight.grad().zero_();
                step.commit([&] { mine.optimizer->step(); });
            }});
        });
        EXPECT_THAT(error, is_error("\"layer.bias\" of ranks 0, 1 differ"));
    });
}

TEST(TorchElasticState, OptimizersWhoseStateIsUnknownAreRefused) {
    namespace optim = ::torch::optim;
    run_loops([](ElasticLoop& loop, std::uint32_t /*rank*/) {
        models::Norm net;
        optim::LBFGS lbfgs(net->parameters());
        optim::SGD damped(net->parameters(), optim::SGDOptions(0.1).momentum(0.9).dampening(0.5));
        EXPECT_THAT(error_of([&] { torch::register_state(loop, *net, lbfgs, "first."); }),
                    is_error("SGD, Adam, AdamW, RMSprop and Adagrad"));
        EXPECT_THAT(error_of([&] { torch::register_state(loop, *net, damped, "second."); }),
                    is_error("dampening"));
    });
}

TEST(TorchAdapter, TensorsWithoutAFlatViewAreRefused) {
    const auto refusal = [](const at::Tensor& tensor) {
        const auto error = error_of([&] { (void)torch::view_of(tensor, "parameter 3"); });
        return error ? std::string(error->what()) : "no error";
    };
    EXPECT_THAT(refusal(at::ones({2, 3}).t()), HasSubstr("parameter 3 is not contiguous"));
    EXPECT_THAT(refusal(at::ones({2}, at::kComplexFloat)), HasSubstr("parameter 3 is of type"));
    EXPECT_EQ(refusal(at::ones({2, 3})), "no error");
}

}  // namespace
}  // namespace regroup
