// SPDX-License-Identifier: Apache-2.0
//
// communication parameter_server: training with servers that hold the parameters, and workers that
// push gradients to them and pull parameters from them.
//
//     regroup run --standalone --nproc-per-node=5 communication parameter_server --servers 2 --mode
//     sync
//
// Ranks 0 to S-1 are servers, each holding its share of the parameters; the others are workers,
// which talk to all servers and never to one another.
//
//   sync    A server waits for the gradients of all workers, takes one step, and hands out the new
//           parameters: the same as SGD on the batches of all workers together, to the last bit.
//   async   A server takes a step with each gradient as it arrives and answers its worker at once.
//           No rank waits for a slow worker. Gradients may belong to parameters a few steps old.
//
// `--backend nccl` sends gradients and parameters from GPU to GPU, in sync mode only: a GPU
// receives messages in the order of its stream, not in the order of arrival.

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/process_group.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "communication.h"
#include "flags.h"
#include "linear_regression.h"

namespace {

using regroup::ProcessGroup;
using regroup::Work;

constexpr std::uint32_t kPush = 1;  // gradients, to a server
constexpr std::uint32_t kPull = 2;  // parameters, to a worker
// How often an asynchronous server checks which worker has pushed.
constexpr std::chrono::microseconds kLook(20);

struct Options {
    std::int64_t servers = 1;
    std::int64_t steps = 200;
    std::int64_t batch_size = 32;
    std::int64_t features = 20;
    double learning_rate = 0.1;
    std::string mode = "sync";
    std::string backend = "cpu";
};

// The roles of the ranks, and each server's share of the parameters.
struct Roles {
    Roles(const Options& options, const regroup::Context& context)
        : server_count(static_cast<std::uint32_t>(options.servers)),
          worker_count(context.world_size - server_count),
          parameter_count(static_cast<std::size_t>(options.features) + 1) {}

    // The share of `server` in a buffer of all parameters or all gradients.
    [[nodiscard]] regroup::TensorView share(std::uint32_t server, regroup::TensorView all) const {
        return all.part(share_begin(server), share_size(server));
    }
    [[nodiscard]] std::size_t share_begin(std::uint32_t server) const {
        return parameter_count * server / server_count;
    }
    [[nodiscard]] std::size_t share_size(std::uint32_t server) const {
        return share_begin(server + 1) - share_begin(server);
    }
    [[nodiscard]] std::uint32_t rank_of_worker(std::uint32_t worker) const {
        return server_count + worker;
    }

    std::uint32_t server_count;
    std::uint32_t worker_count;
    std::size_t parameter_count;
};

void wait_for(const std::vector<Work>& all) {
    for (const Work& work : all) {
        work.wait();
    }
}

// ---------------------------------------------------------------------------------------------------

class Server {
   public:
    Server(const Options& options, const Roles& roles, ProcessGroup& group)
        : options_(options),
          roles_(roles),
          group_(group),
          parameters_(roles.share_size(group.rank()), group.device()),
          received_(roles.worker_count) {
        for (std::uint32_t worker = 0; worker < roles.worker_count; ++worker) {
            pushed_.emplace_back(parameters_.size(), group.device());
        }
    }

    void run() {
        answer_all();
        options_.mode == "sync" ? serve_in_steps() : serve_as_they_come();
    }

   private:
    Work answer(std::uint32_t worker) {
        return group_.send(parameters_.view(), roles_.rank_of_worker(worker), kPull);
    }

    // Waits until the parameters are sent, since the next step changes them.
    void answer_all() {
        std::vector<Work> sent;
        regroup::OperationBatch batch(group_);
        for (std::uint32_t worker = 0; worker < roles_.worker_count; ++worker) {
            sent.push_back(answer(worker));
        }
        batch.start();
        wait_for(sent);
    }

    void expect(std::uint32_t worker) {
        received_[worker] =
            group_.recv(pushed_[worker].view(), roles_.rank_of_worker(worker), kPush);
    }

    void expect_all() {
        regroup::OperationBatch batch(group_);
        for (std::uint32_t worker = 0; worker < roles_.worker_count; ++worker) {
            expect(worker);
        }
        batch.start();
    }

    void take_step(std::span<const float> gradients) {
        const std::span<float> parameters = parameters_.host();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            parameters[i] -= static_cast<float>(options_.learning_rate) * gradients[i];
        }
        parameters_.upload();
    }

    void serve_in_steps() {
        std::vector<float> sum(parameters_.size());
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            expect_all();
            // Added in the order of workers, not of arrival, so that every run is the same.
            std::fill(sum.begin(), sum.end(), 0.0F);
            for (std::uint32_t worker = 0; worker < roles_.worker_count; ++worker) {
                received_[worker].wait();
                pushed_[worker].download();
                for (std::size_t i = 0; i < sum.size(); ++i) {
                    sum[i] += pushed_[worker].host()[i];
                }
            }
            take_step(sum);
            answer_all();
        }
    }

    void serve_as_they_come() {
        std::vector<std::int64_t> pushes_left(roles_.worker_count, options_.steps);
        std::uint32_t working_count = options_.steps > 0 ? roles_.worker_count : 0;
        for (std::uint32_t worker = 0; worker < working_count; ++worker) {
            expect(worker);
        }
        while (working_count > 0) {
            bool was_idle = true;
            for (std::uint32_t worker = 0; worker < roles_.worker_count; ++worker) {
                if (pushes_left[worker] == 0 || !received_[worker].done()) {
                    continue;
                }
                was_idle = false;
                received_[worker].wait();  // throws if the worker is gone
                take_step(pushed_[worker].host());
                answer(worker).wait();  // sent, but perhaps not received yet
                if (--pushes_left[worker] == 0) {
                    --working_count;
                } else {
                    expect(worker);
                }
            }
            if (was_idle) {
                std::this_thread::sleep_for(kLook);
            }
        }
    }

    const Options& options_;
    const Roles roles_;
    ProcessGroup& group_;
    example::DeviceVector<float> parameters_;           // this server's share
    std::vector<example::DeviceVector<float>> pushed_;  // by worker
    std::vector<Work> received_;                        // by worker
};

// ---------------------------------------------------------------------------------------------------

// The batches of each step, divided among the workers as DistributedSampler divides among ranks.
class Batches {
   public:
    Batches(const Options& options, std::size_t sample_count, std::uint32_t worker,
            std::uint32_t worker_count)
        : global_batch_(static_cast<std::uint64_t>(options.batch_size) * worker_count),
          steps_per_epoch_(sample_count / global_batch_),
          sampler_({.dataset_count = sample_count, .rank = worker, .world_size = worker_count}) {
        if (steps_per_epoch_ == 0) {
            throw example::UsageError("--batch-size: the workers' batches are more than the data");
        }
    }

    [[nodiscard]] std::vector<std::uint64_t> of_step(std::int64_t step) {
        const auto number = static_cast<std::uint64_t>(step);
        sampler_.set_epoch(number / steps_per_epoch_);
        const std::uint64_t first = number % steps_per_epoch_ * global_batch_;
        return sampler_.shard({first, first + global_batch_});
    }
    // The weight of one sample, so that the gradients of all workers add up to that of the mean
    // loss.
    [[nodiscard]] float weight() const { return 1.0F / static_cast<float>(global_batch_); }

   private:
    std::uint64_t global_batch_;
    std::uint64_t steps_per_epoch_;
    regroup::DistributedSampler sampler_;
};

class Worker {
   public:
    Worker(const Options& options, const Roles& roles, ProcessGroup& group)
        : options_(options),
          roles_(roles),
          group_(group),
          worker_(group.rank() - roles.server_count),
          dataset_(4096, static_cast<std::size_t>(options.features)),
          model_(dataset_.feature_count(), group.device()) {}

    void run() {
        Batches batches(options_, dataset_.count(), worker_, roles_.worker_count);
        pull();
        const double first_loss = model_.loss(dataset_);
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            model_.forward_backward(dataset_, batches.of_step(step), batches.weight());
            push();
            pull();
        }
        if (worker_ == 0) {
            std::printf("%s, %u servers, %u workers: loss %.6f before, %.6f after %ld steps\n",
                        options_.mode.c_str(), roles_.server_count, roles_.worker_count, first_loss,
                        model_.loss(dataset_), options_.steps);
            if (options_.mode == "sync") {
                std::printf("largest difference from plain SGD: %g\n", difference_from_plain_sgd());
            }
        }
    }

   private:
    void push() {
        model_.device_gradients().upload();
        const regroup::TensorView gradients = model_.device_gradients().view();
        std::vector<Work> sent;
        regroup::OperationBatch batch(group_);
        for (std::uint32_t server = 0; server < roles_.server_count; ++server) {
            sent.push_back(group_.send(roles_.share(server, gradients), server, kPush));
        }
        batch.start();
        wait_for(sent);
    }

    void pull() {
        const regroup::TensorView values = model_.device_values().view();
        std::vector<Work> received;
        regroup::OperationBatch batch(group_);
        for (std::uint32_t server = 0; server < roles_.server_count; ++server) {
            received.push_back(group_.recv(roles_.share(server, values), server, kPull));
        }
        batch.start();
        wait_for(received);
        model_.device_values().download();
    }

    // The same training in this process alone: one model, the batches of all workers.
    [[nodiscard]] double difference_from_plain_sgd() const {
        std::vector<Batches> batches;
        for (std::uint32_t worker = 0; worker < roles_.worker_count; ++worker) {
            batches.emplace_back(options_, dataset_.count(), worker, roles_.worker_count);
        }
        example::LinearRegression plain(dataset_.feature_count());
        std::vector<float> sum(roles_.parameter_count);
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            std::fill(sum.begin(), sum.end(), 0.0F);
            for (Batches& part : batches) {
                plain.forward_backward(dataset_, part.of_step(step), part.weight());
                for (std::size_t i = 0; i < sum.size(); ++i) {
                    sum[i] += plain.gradients()[i];
                }
            }
            std::copy(sum.begin(), sum.end(), plain.gradients().begin());
            plain.apply_gradients(options_.learning_rate);
        }
        double largest = 0.0;
        for (std::size_t i = 0; i < sum.size(); ++i) {
            largest = std::max(largest, std::abs(double{plain.values()[i]} - model_.values()[i]));
        }
        return largest;
    }

    const Options& options_;
    const Roles roles_;
    ProcessGroup& group_;
    const std::uint32_t worker_;
    const example::Dataset dataset_;
    example::LinearRegression model_;
};

void run(const Options& options, const regroup::Context& context) {
    if (options.mode != "sync" && options.mode != "async") {
        throw example::UsageError("--mode is sync or async, not '" + options.mode + "'");
    }
    if (options.servers > options.features + 1) {
        throw example::UsageError("--servers: there are only " +
                                  std::to_string(options.features + 1) + " parameters to share");
    }
    example::require_ranks(context, static_cast<std::uint32_t>(options.servers) + 1);
    if (options.mode == "async" && options.backend == "nccl") {
        throw example::UsageError(
            "--mode async serves workers as they come, and on GPUs messages "
            "come in the order of a stream; take --backend cpu");
    }
    const auto group = ProcessGroup::create(options.backend, context);
    const Roles roles(options, context);
    if (context.rank < roles.server_count) {
        Server(options, roles, *group).run();
    } else {
        Worker(options, roles, *group).run();
    }
    // If a server left while a worker still reads its answer, the worker would take it for lost.
    group->barrier().wait();
}

}  // namespace

int parameter_server(int argc, char** argv) {
    Options options;
    example::Flags flags("communication parameter_server",
                         "trains a linear model with parameter servers (the first ranks) and\n"
                         "workers (the others).");
    flags.add("--servers", options.servers, {1, 1024}, "servers, each holding a share");
    flags.add("--mode", options.mode, "sync or async (sync)");
    flags.add("--steps", options.steps, {0, 1'000'000'000}, "steps that each worker takes");
    flags.add("--batch-size", options.batch_size, {1, 1 << 20}, "samples per step of each worker");
    flags.add("--features", options.features, {1, 1 << 20}, "of the model");
    flags.add("--learning-rate", options.learning_rate, "of SGD");
    flags.add_backend(options.backend);
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { run(options, context); });
}
