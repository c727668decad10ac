// SPDX-License-Identifier: Apache-2.0
//
// checkpoint: a job that may be killed at any instant, and resumes from its last checkpoint on any
// number of ranks.
//
//     regroup run --standalone --nproc-per-node=4 --max-restarts=3 checkpoint --kill-at 35
//
// Three rules make that work:
//
//   - Only rank 0 prints, and reads and writes the file. The constructor of
//     DistributedDataParallel sends its state to the others. run_on_main keeps all ranks together
//     meanwhile, and reports a failure on all of them.
//   - Checkpoint::save replaces the file at once and in full, or not at all.
//   - The checkpoint stores the number of steps. The samples of a step follow from its number and
//     the seed, and the global batch is the same for any number of ranks. So the file does not
//     depend on the world size.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>
#include <unistd.h>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
    std::int64_t steps = 100;
    std::int64_t save_every = 10;
    std::int64_t global_batch = 64;
    std::int64_t kill_at = -1;
    std::int64_t step_delay_ms = 0;
    double learning_rate = 0.05;
    std::string checkpoint = "job.regroup";
};

class Job {
   public:
    Job(const Options& options, const regroup::Context& context)
        : options_(options),
          context_(context),
          group_(regroup::ProcessGroup::create("cpu", context)),
          sampler_({.dataset_count = dataset_.count(),
                    .rank = context.rank,
                    .world_size = context.world_size}) {}

    void run() {
        regroup::run_on_main(*group_, [this] { load(); });
        // Gives every rank the state of rank 0: the model, its momentum, and the number of steps.
        regroup::DistributedDataParallel ddp(
            *group_, model_.parameters(),
            {std::span(momentum_), std::span<std::int64_t>(&step_, 1)},
            {.reduction = regroup::ReduceOp::sum});
        log_start();
        while (step_ < options_.steps) {
            train_step(ddp);
            if (step_ % options_.save_every == 0 || step_ == options_.steps) {
                regroup::run_on_main(*group_, [this] { save(); });
                log("step " + std::to_string(step_) + ": saved");
            }
            die_if_asked_to();
            std::this_thread::sleep_for(std::chrono::milliseconds(options_.step_delay_ms));
        }
        std::array<char, 64> line{};
        std::snprintf(line.data(), line.size(), "final loss %.9f", model_.loss(dataset_));
        log(line.data());
    }

   private:
    void train_step(regroup::DistributedDataParallel& ddp) {
        const auto step = static_cast<std::uint64_t>(step_);
        const auto batch = static_cast<std::uint64_t>(options_.global_batch);
        const std::uint64_t steps_per_epoch = dataset_.count() / batch;
        sampler_.set_epoch(step / steps_per_epoch);
        const std::uint64_t first = step % steps_per_epoch * batch;
        // The weight of a sample is 1 / global batch, so that the sum over ranks is the mean.
        model_.forward_backward(dataset_, sampler_.shard({first, first + batch}),
                                1.0F / static_cast<float>(batch));
        ddp.reduce_gradients();
        for (std::size_t i = 0; i < momentum_.size(); ++i) {
            momentum_[i] = 0.9F * momentum_[i] + model_.gradients()[i];
            model_.gradients()[i] = momentum_[i];
        }
        model_.apply_gradients(options_.learning_rate);
        ++step_;
    }

    void load() {
        const auto checkpoint = regroup::Checkpoint::load_if_present(options_.checkpoint);
        if (!checkpoint) {
            return;
        }
        if (checkpoint->integer("global batch") != options_.global_batch) {
            throw regroup::Error(regroup::Errc::invalid_argument,
                                 options_.checkpoint + " is of a job with --global-batch " +
                                     std::to_string(checkpoint->integer("global batch")));
        }
        step_ = checkpoint->integer("step");
        checkpoint->read_tensor("model", model_.values());
        checkpoint->read_tensor("momentum", std::span(momentum_));
    }

    void save() {
        regroup::Checkpoint checkpoint;
        checkpoint.set_integer("global batch", options_.global_batch);
        checkpoint.set_integer("step", step_);
        checkpoint.set_tensor("model", model_.values());
        checkpoint.set_tensor("momentum", std::span(momentum_));
        checkpoint.save(options_.checkpoint);
    }

    void log_start() const {
        const std::string steps =
            "step " + std::to_string(step_) + " of " + std::to_string(options_.steps);
        if (step_ > 0 && step_ >= options_.steps) {
            log(options_.checkpoint + " is complete: " + steps +
                "; remove it to train anew, or give more --steps");
        } else {
            log("starting at " + steps + ", on " + std::to_string(context_.world_size) + " ranks");
        }
    }

    // In the first round the last rank kills itself, to demonstrate a restart.
    void die_if_asked_to() const {
        const bool is_last = context_.rank + 1 == context_.world_size;
        if (step_ == options_.kill_at && is_last && context_.restart_count == 0) {
            ::kill(::getpid(), SIGKILL);
        }
    }

    void log(const std::string& line) const { regroup::log_main(context_, line); }

    const Options options_;
    const regroup::Context context_;
    const std::unique_ptr<regroup::ProcessGroup> group_;
    const example::Dataset dataset_{2048, 20};
    example::LinearRegression model_{20};
    std::vector<float> momentum_ = std::vector<float>(21);
    std::int64_t step_ = 0;  // steps done
    regroup::DistributedSampler sampler_;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("checkpoint", "trains a linear model, and resumes where it was killed.");
    flags.add("--checkpoint", options.checkpoint, "resume from it, save to it (job.regroup)");
    flags.add("--steps", options.steps, {0, 1'000'000'000}, "steps to train in all");
    flags.add("--save-every", options.save_every, {1, 1'000'000'000}, "steps between checkpoints");
    flags.add("--global-batch", options.global_batch, {1, 2048},
              "samples per step, over all ranks");
    flags.add("--learning-rate", options.learning_rate, "of SGD with momentum 0.9 (0.05)");
    flags.add("--kill-at", options.kill_at, {-1, 1'000'000'000},
              "the step at which the last rank is killed, once");
    flags.add("--step-delay-ms", options.step_delay_ms, {0, 60'000}, "pause after each step");
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { Job(options, context).run(); });
}
