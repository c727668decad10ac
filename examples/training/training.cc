// SPDX-License-Identifier: Apache-2.0
//
// training: three shapes of a data-parallel training program. One command for each:
//
//     regroup run --standalone --nproc-per-node=2 training trainer --max_epochs 5 --batch_size 32
//     regroup run --standalone --nproc-per-node=4 training partitioner
//     regroup run --standalone --nproc-per-node=4 --max-restarts=3 training checkpoint --kill-at 35
//
// `trainer` has the structure of PyTorch's tutorials, `partitioner` averages gradients by hand, and
// `checkpoint` is a job that may be killed at any instant.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/data_partitioner.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>
#include <regroup/lr_schedule.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <unistd.h>

#include "flags.h"
#include "linear_regression.h"

namespace {

using example::Dataset;
using example::LinearRegression;
using regroup::Checkpoint;
using regroup::Context;
using regroup::DistributedDataParallel;
using regroup::DistributedSampler;
using regroup::log_main;
using regroup::ProcessGroup;
using regroup::run_on_main;

std::string text(const char* format, auto... values) {
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    return line.data();
}

// ---------------------------------------------------------------------------------------------------
// trainer: run_batch, run_epoch and train. Every rank has a replica of the model.
// DistributedSampler gives each rank its own part of the data. DistributedDataParallel averages the
// gradients, so that all replicas take the same step. With --t-0 the learning rate follows a cosine
// with warm restarts (SGDR). A checkpoint has the epoch, which is also the position in that
// schedule.

struct TrainerOptions {
    std::int64_t max_epochs = 5;
    std::int64_t save_every = 0;
    std::int64_t batch_size = 32;
    std::int64_t samples = 2048;
    std::int64_t t_0 = 0;
    std::int64_t t_mult = 2;
    double learning_rate = 0.05;
    double eta_min = 0.001;
    std::string checkpoint = "checkpoint.regroup";
    std::string backend = "cpu";
};

class Trainer {
   public:
    Trainer(const TrainerOptions& options, const Context& context)
        : options_(options),
          context_(context),
          group_(ProcessGroup::create(options.backend, context)),
          host_group_(on_host() ? group_ : ProcessGroup::create("cpu", context, {.name = "host"})),
          dataset_(static_cast<std::size_t>(options.samples), 20),
          model_(dataset_.feature_count(), group_->device()),
          sampler_({.dataset_count = dataset_.count(),
                    .rank = context.rank,
                    .world_size = context.world_size}),
          first_epoch_(load_checkpoint()),
          ddp_(*group_, model_.parameters()) {
        model_.device_values().download();  // the values of rank 0
        if (options.t_0 > 0) {
            schedule_.emplace(regroup::CosineWarmRestartsOptions{
                .base_lr = options.learning_rate,
                .t_0 = static_cast<std::uint64_t>(options.t_0),
                .t_mult = static_cast<std::uint64_t>(options.t_mult),
                .eta_min = options.eta_min});
        }
    }

    void train() {
        for (std::int64_t epoch = first_epoch_; epoch < options_.max_epochs; ++epoch) {
            run_epoch(epoch);
            if (options_.save_every != 0 && epoch % options_.save_every == 0) {
                save_checkpoint(epoch);
            }
        }
        log_main(context_, text("mean loss over the data set: %.6f", model_.loss(dataset_)));
    }

   private:
    [[nodiscard]] bool on_host() const { return group_->device().kind == regroup::DeviceKind::cpu; }
    [[nodiscard]] double learning_rate() const {
        return schedule_ ? schedule_->lr() : options_.learning_rate;
    }

    void run_batch(std::span<const std::uint64_t> samples) {
        model_.forward_backward(dataset_, samples, 1.0F / static_cast<float>(samples.size()));
        model_.device_gradients().upload();
        ddp_.reduce_gradients();
        model_.device_gradients().download();
        model_.apply_gradients(learning_rate());
    }

    void run_epoch(std::int64_t epoch) {
        sampler_.set_epoch(static_cast<std::uint64_t>(epoch));
        const std::vector<std::uint64_t> samples = sampler_.indices();
        const auto batch_size = static_cast<std::size_t>(options_.batch_size);
        const std::size_t steps = (samples.size() + batch_size - 1) / batch_size;
        std::printf("[GPU: %u] Epoch: %ld | Batchsize: %zu | Steps: %zu\n", context_.rank, epoch,
                    std::min(batch_size, samples.size()), steps);
        if (schedule_) {
            schedule_->step_to(static_cast<double>(epoch));
        }
        const double first_rate = learning_rate();
        for (std::size_t step = 0; step < steps; ++step) {
            if (schedule_) {  // The rate falls with every step, not once per epoch.
                schedule_->step_to(static_cast<double>(epoch) +
                                   static_cast<double>(step) / static_cast<double>(steps));
            }
            const std::size_t first = step * batch_size;
            run_batch(
                std::span(samples).subspan(first, std::min(batch_size, samples.size() - first)));
        }
        if (schedule_) {
            log_main(context_, text("epoch %2ld: lr %.6f to %.6f, loss %.8f", epoch, first_rate,
                                    learning_rate(), model_.loss(dataset_)));
        }
    }

    // Returns the epoch to begin with. DistributedDataParallel then gives all ranks this model.
    std::int64_t load_checkpoint() {
        std::int64_t epoch = 0;
        run_on_main(*host_group_, [&] {
            const auto checkpoint = options_.save_every == 0
                                        ? std::nullopt
                                        : Checkpoint::load_if_present(options_.checkpoint);
            if (checkpoint) {
                epoch = checkpoint->integer("epoch") + 1;
                checkpoint->read_tensor("model", model_.values());
                model_.device_values().upload();
                log_main(context_, "resuming at epoch " + std::to_string(epoch));
            }
        });
        host_group_->broadcast(std::span(&epoch, 1), 0).wait();
        return epoch;
    }

    void save_checkpoint(std::int64_t epoch) {
        run_on_main(*host_group_, [&] {
            Checkpoint checkpoint;
            checkpoint.set_integer("epoch", epoch);
            checkpoint.set_tensor("model", model_.values());
            checkpoint.save(options_.checkpoint);
        });
        log_main(context_, "Epoch " + std::to_string(epoch) + " | Training checkpoint saved at " +
                               options_.checkpoint);
    }

    const TrainerOptions options_;
    const Context context_;
    const std::shared_ptr<ProcessGroup> group_;
    // For communication between hosts' memory. The same group, unless that one is on GPUs.
    const std::shared_ptr<ProcessGroup> host_group_;
    const Dataset dataset_;
    LinearRegression model_;
    DistributedSampler sampler_;
    const std::int64_t first_epoch_;
    DistributedDataParallel ddp_;
    std::optional<regroup::CosineWarmRestarts> schedule_;
};

int trainer(int argc, char** argv) {
    TrainerOptions options;
    example::Flags flags("training trainer", "trains a linear model, data-parallel.");
    flags.add("--max-epochs", options.max_epochs, {0, 1'000'000}, "epochs to train");
    flags.add("--save-every", options.save_every, {0, 1'000'000},
              "epochs from one checkpoint to the next; 0 has none");
    flags.add("--batch-size", options.batch_size, {1, 1 << 20}, "samples per step on each rank");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--learning-rate", options.learning_rate, "of SGD");
    flags.add("--t-0", options.t_0, {0, 1'000'000},
              "epochs until the first warm restart of the rate; 0: the rate is constant");
    flags.add("--t-mult", options.t_mult, {1, 1000}, "how much longer each period is");
    flags.add("--eta-min", options.eta_min, "the rate that each period falls to");
    flags.add("--checkpoint", options.checkpoint,
              "file to resume from and to save to (checkpoint.regroup)");
    flags.add_backend(options.backend);
    flags.add_positional({"--max-epochs", "--save-every"});
    return example::run_main(flags, argc, argv,
                             [&](const Context& context) { Trainer(options, context).train(); });
}

// ---------------------------------------------------------------------------------------------------
// partitioner: a partition of the data for each rank, and average_gradients after every backward
// pass. The global batch of 128 is divided among the ranks, so that their number changes the speed
// of an epoch, but not the steps.

struct PartitionerOptions {
    std::int64_t epochs = 10;
    std::int64_t global_batch = 128;
    std::int64_t samples = 8192;
    double learning_rate = 0.01;
    double momentum = 0.5;
    std::string backend = "cpu";
};

// This rank's part of the data set, the same in every run, and its batch size.
struct Partition {
    regroup::DataPartitioner partitioner;
    std::span<const std::uint64_t> samples;
    std::size_t batch;
};

Partition partition_dataset(const PartitionerOptions& options, const Context& context) {
    regroup::DataPartitioner partitioner(
        {.dataset_count = static_cast<std::uint64_t>(options.samples),
         .sizes = regroup::DataPartitioner::equal_sizes(context.world_size)});
    const std::span<const std::uint64_t> mine = partitioner.use(context.rank);
    const std::uint64_t batch = regroup::batch_per_rank(
        static_cast<std::uint64_t>(options.global_batch), context.world_size);
    // Moving the partitioner does not move its indices.
    return {std::move(partitioner), mine, batch};
}

// One all-reduce per parameter. DistributedDataParallel is faster.
void average_gradients(ProcessGroup& group, LinearRegression& model) {
    model.device_gradients().upload();
    for (const regroup::Parameter& parameter : model.parameters()) {
        group.all_reduce(parameter.gradient, regroup::ReduceOp::sum).wait();
    }
    model.device_gradients().download();
    for (float& gradient : model.gradients()) {
        gradient /= static_cast<float>(group.world_size());
    }
}

void train_on_partition(const PartitionerOptions& options, const Context& context) {
    const auto group = ProcessGroup::create(options.backend, context);
    const Dataset dataset(static_cast<std::size_t>(options.samples), 20);
    const Partition partition = partition_dataset(options, context);
    if (partition.samples.empty()) {
        throw example::UsageError("--samples: too few for a partition on every rank");
    }
    LinearRegression model(dataset.feature_count(), group->device());
    std::vector<float> velocity(model.values().size());

    for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
        double epoch_loss = 0.0;
        std::size_t batch_count = 0;
        for (std::size_t first = 0; first < partition.samples.size(); first += partition.batch) {
            const auto batch = partition.samples.subspan(
                first, std::min(partition.batch, partition.samples.size() - first));
            const auto count = static_cast<float>(batch.size());
            epoch_loss += model.forward_backward(dataset, batch, 1.0F / count) / double{count};
            ++batch_count;
            average_gradients(*group, model);
            for (std::size_t i = 0; i < velocity.size(); ++i) {
                velocity[i] =
                    static_cast<float>(options.momentum) * velocity[i] + model.gradients()[i];
                model.gradients()[i] = velocity[i];
            }
            model.apply_gradients(options.learning_rate);
        }
        std::printf("Rank %u, epoch %ld: %.6f\n", context.rank, epoch,
                    epoch_loss / static_cast<double>(batch_count));
    }
}

int partitioner(int argc, char** argv) {
    PartitionerOptions options;
    example::Flags flags("training partitioner",
                         "trains on one partition of the data for each rank.");
    flags.add("--epochs", options.epochs, {0, 1'000'000}, "epochs to train");
    flags.add("--global-batch", options.global_batch, {1, 1 << 20},
              "samples per step, over all ranks");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--learning-rate", options.learning_rate, "of SGD");
    flags.add("--momentum", options.momentum, "of SGD");
    flags.add_backend(options.backend);
    return example::run_main(flags, argc, argv,
                             [&](const Context& context) { train_on_partition(options, context); });
}

// ---------------------------------------------------------------------------------------------------
// checkpoint: a job that resumes from its last checkpoint on any number of ranks. Three rules make
// that work:
//
//   - Only rank 0 prints, and reads and writes the file. The constructor of
//     DistributedDataParallel sends its state to the others. run_on_main keeps all ranks together
//     meanwhile, and reports a failure on all of them.
//   - Checkpoint::save replaces the file at once and in full, or not at all.
//   - The checkpoint stores the number of steps. The samples of a step follow from its number and
//     the seed, and the global batch is the same for any number of ranks. So the file does not
//     depend on the world size.

struct CheckpointOptions {
    std::int64_t steps = 100;
    std::int64_t save_every = 10;
    std::int64_t global_batch = 64;
    std::int64_t kill_at = -1;
    std::int64_t step_delay_ms = 0;
    double learning_rate = 0.05;
    std::string checkpoint = "job.regroup";
};

class CheckpointedJob {
   public:
    CheckpointedJob(const CheckpointOptions& options, const Context& context)
        : options_(options),
          context_(context),
          group_(ProcessGroup::create("cpu", context)),
          sampler_({.dataset_count = dataset_.count(),
                    .rank = context.rank,
                    .world_size = context.world_size}) {}

    void run() {
        run_on_main(*group_, [this] { load(); });
        // Gives every rank the state of rank 0: the model, its momentum, and the number of steps.
        DistributedDataParallel ddp(*group_, model_.parameters(),
                                    {std::span(momentum_), std::span<std::int64_t>(&step_, 1)},
                                    {.reduction = regroup::ReduceOp::sum});
        log_start();
        while (step_ < options_.steps) {
            train_step(ddp);
            if (step_ % options_.save_every == 0 || step_ == options_.steps) {
                run_on_main(*group_, [this] { save(); });
                log("step " + std::to_string(step_) + ": saved");
            }
            die_if_asked_to();
            std::this_thread::sleep_for(std::chrono::milliseconds(options_.step_delay_ms));
        }
        log(text("final loss %.9f", model_.loss(dataset_)));
    }

   private:
    void train_step(DistributedDataParallel& ddp) {
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
        const auto checkpoint = Checkpoint::load_if_present(options_.checkpoint);
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
        Checkpoint checkpoint;
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

    void log(const std::string& line) const { log_main(context_, line); }

    const CheckpointOptions options_;
    const Context context_;
    const std::unique_ptr<ProcessGroup> group_;
    const Dataset dataset_{2048, 20};
    LinearRegression model_{20};
    std::vector<float> momentum_ = std::vector<float>(21);
    std::int64_t step_ = 0;  // steps done
    DistributedSampler sampler_;
};

int checkpoint(int argc, char** argv) {
    CheckpointOptions options;
    example::Flags flags("training checkpoint",
                         "trains a linear model, and resumes where it was killed.");
    flags.add("--checkpoint", options.checkpoint, "resume from it, save to it (job.regroup)");
    flags.add("--steps", options.steps, {0, 1'000'000'000}, "steps to train in all");
    flags.add("--save-every", options.save_every, {1, 1'000'000'000}, "steps between checkpoints");
    flags.add("--global-batch", options.global_batch, {1, 2048},
              "samples per step, over all ranks");
    flags.add("--learning-rate", options.learning_rate, "of SGD with momentum 0.9");
    flags.add("--kill-at", options.kill_at, {-1, 1'000'000'000},
              "the step at which the last rank is killed, once");
    flags.add("--step-delay-ms", options.step_delay_ms, {0, 60'000}, "pause after each step");
    return example::run_main(flags, argc, argv, [&](const Context& context) {
        CheckpointedJob(options, context).run();
    });
}

}  // namespace

int main(int argc, char** argv) {
    return example::run_command(
        "training",
        {{"trainer", "a Trainer with DistributedSampler and DistributedDataParallel", trainer},
         {"partitioner", "DataPartitioner, and gradients that are averaged by hand", partitioner},
         {"checkpoint", "a job that is killed, and resumes on any number of ranks", checkpoint}},
        argc, argv);
}
