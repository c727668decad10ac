// SPDX-License-Identifier: Apache-2.0
//
// trainer: data-parallel training in the structure of PyTorch's tutorials: a Trainer with
// run_batch, run_epoch and train.
//
//     regroup run --standalone --nproc-per-node=2 trainer --max_epochs 5 --batch_size 32
//
// Every rank has a replica of the model. DistributedSampler gives each rank its own part of the
// data, DistributedDataParallel averages the gradients, so that all replicas take the same step.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
    std::int64_t max_epochs = 5;
    std::int64_t save_every = 0;
    std::int64_t batch_size = 32;
    std::int64_t samples = 2048;
    double learning_rate = 0.05;
    std::string checkpoint = "checkpoint.regroup";
    std::string backend = "cpu";
};

class Trainer {
   public:
    Trainer(const Options& options, const regroup::Context& context)
        : options_(options),
          context_(context),
          group_(regroup::ProcessGroup::create(options.backend, context)),
          host_group_(on_host() ? group_
                                : regroup::ProcessGroup::create("cpu", context, {.name = "host"})),
          dataset_(static_cast<std::size_t>(options.samples), 20),
          model_(dataset_.feature_count(), group_->device()),
          sampler_({.dataset_count = dataset_.count(),
                    .rank = context.rank,
                    .world_size = context.world_size}),
          ddp_(*group_, model_.parameters()) {
        model_.device_values().download();  // the values of rank 0
    }

    void train(std::int64_t max_epochs) {
        for (std::int64_t epoch = 0; epoch < max_epochs; ++epoch) {
            run_epoch(epoch);
            if (options_.save_every != 0 && epoch % options_.save_every == 0) {
                save_checkpoint(epoch);
            }
        }
        char loss[32];
        std::snprintf(loss, sizeof loss, "%.6f", model_.loss(dataset_));
        regroup::log_main(context_, std::string("mean loss over the data set: ") + loss);
    }

   private:
    [[nodiscard]] bool on_host() const { return group_->device().kind == regroup::DeviceKind::cpu; }

    void run_batch(std::span<const std::uint64_t> samples) {
        model_.forward_backward(dataset_, samples, 1.0F / static_cast<float>(samples.size()));
        model_.device_gradients().upload();
        ddp_.reduce_gradients();
        model_.device_gradients().download();
        model_.apply_gradients(options_.learning_rate);
    }

    void run_epoch(std::int64_t epoch) {
        sampler_.set_epoch(static_cast<std::uint64_t>(epoch));
        const std::vector<std::uint64_t> samples = sampler_.indices();
        const auto batch_size = static_cast<std::size_t>(options_.batch_size);
        const std::size_t steps = (samples.size() + batch_size - 1) / batch_size;
        std::printf("[GPU: %u] Epoch: %ld | Batchsize: %zu | Steps: %zu\n", context_.rank, epoch,
                    std::min(batch_size, samples.size()), steps);
        for (std::size_t step = 0; step < steps; ++step) {
            const std::size_t first = step * batch_size;
            run_batch(
                std::span(samples).subspan(first, std::min(batch_size, samples.size() - first)));
        }
    }

    void save_checkpoint(std::int64_t epoch) {
        regroup::run_on_main(*host_group_, [&] {
            regroup::Checkpoint checkpoint;
            checkpoint.set_integer("epoch", epoch);
            checkpoint.set_tensor("model", model_.values());
            checkpoint.save(options_.checkpoint);
        });
        regroup::log_main(context_, "Epoch " + std::to_string(epoch) +
                                        " | Training checkpoint saved at " + options_.checkpoint);
    }

    const Options options_;
    const regroup::Context context_;
    const std::shared_ptr<regroup::ProcessGroup> group_;
    // For communication between hosts' memory. The same group, unless that one is on GPUs.
    const std::shared_ptr<regroup::ProcessGroup> host_group_;
    const example::Dataset dataset_;
    example::LinearRegression model_;
    regroup::DistributedSampler sampler_;
    regroup::DistributedDataParallel ddp_;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("trainer", "trains a linear model, data-parallel.");
    flags.add("--max-epochs", options.max_epochs, {0, 1'000'000}, "epochs to train");
    flags.add("--save-every", options.save_every, {0, 1'000'000},
              "epochs from one checkpoint to the next; 0 saves none");
    flags.add("--batch-size", options.batch_size, {1, 1 << 20}, "samples per step on each rank");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--learning-rate", options.learning_rate, "of SGD (0.05)");
    flags.add("--checkpoint", options.checkpoint, "file to save to (checkpoint.regroup)");
    example::add_backend(flags, options.backend);
    flags.add_positional({"--max-epochs", "--save-every"});
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        Trainer(options, context).train(options.max_epochs);
    });
}
