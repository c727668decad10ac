// SPDX-License-Identifier: Apache-2.0
//
// warm_restarts: cosine annealing of the learning rate with warm restarts, in growing periods.
//
//     regroup run --standalone --nproc-per-node=2 warm_restarts --checkpoint sgdr.regroup
//
// The schedule is part of the checkpoint: a job that ended early (--stop-after) continues from
// there.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/lr_schedule.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>
#include <cmath>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
    std::int64_t epochs = 14;
    std::int64_t stop_after = 1'000'000;
    std::int64_t t_0 = 2;
    std::int64_t t_mult = 2;
    double learning_rate = 0.1;
    double eta_min = 0.001;
    std::string checkpoint;
};

class Trainer {
   public:
    Trainer(const Options& options, const regroup::Context& context)
        : options_(options),
          context_(context),
          group_(regroup::ProcessGroup::create("cpu", context)),
          schedule_({.base_lr = options.learning_rate,
                     .t_0 = static_cast<std::uint64_t>(options.t_0),
                     .t_mult = static_cast<std::uint64_t>(options.t_mult),
                     .eta_min = options.eta_min}),
          sampler_({.dataset_count = dataset_.count(),
                    .rank = context.rank,
                    .world_size = context.world_size}) {}

    void run() {
        regroup::run_on_main(*group_, [this] { load(); });
        // Now every rank has the model of rank 0 and its position in the schedule.
        double epoch = schedule_.epoch();
        regroup::DistributedDataParallel ddp(*group_, model_.parameters(),
                                             {std::span<double>(&epoch, 1)});
        schedule_.step_to(epoch);
        if (epoch > 0.0) {
            regroup::log_main(context_, "resuming at epoch " + std::to_string(std::lround(epoch)));
        }
        const auto last = static_cast<double>(std::min(options_.epochs, options_.stop_after));
        while (schedule_.epoch() < last) {
            run_epoch(ddp);
            regroup::run_on_main(*group_, [this] { save(); });
        }
    }

   private:
    static constexpr std::size_t kBatch = 32;

    void run_epoch(regroup::DistributedDataParallel& ddp) {
        const double epoch = schedule_.epoch();
        const double first_lr = schedule_.lr();
        sampler_.set_epoch(static_cast<std::uint64_t>(epoch));
        const std::vector<std::uint64_t> samples = sampler_.indices();
        const std::size_t steps = (samples.size() + kBatch - 1) / kBatch;
        for (std::size_t step = 0; step < steps; ++step) {
            // The rate falls with every step, not once per epoch.
            schedule_.step_to(epoch + static_cast<double>(step) / static_cast<double>(steps));
            const auto batch = std::span(samples).subspan(
                step * kBatch, std::min(kBatch, samples.size() - step * kBatch));
            model_.forward_backward(dataset_, batch, 1.0F / static_cast<float>(batch.size()));
            ddp.reduce_gradients();
            model_.apply_gradients(schedule_.lr());
        }
        std::array<char, 96> line{};
        std::snprintf(line.data(), line.size(), "epoch %2.0f: lr %.6f to %.6f, loss %.8f", epoch,
                      first_lr, schedule_.lr(), model_.loss(dataset_));
        regroup::log_main(context_, line.data());
        schedule_.step();
    }

    void load() {
        if (options_.checkpoint.empty()) {
            return;
        }
        if (const auto checkpoint = regroup::Checkpoint::load_if_present(options_.checkpoint)) {
            schedule_.load(*checkpoint);
            checkpoint->read_tensor("model", model_.values());
        }
    }

    void save() {
        if (options_.checkpoint.empty()) {
            return;
        }
        regroup::Checkpoint checkpoint;
        schedule_.save(checkpoint);
        checkpoint.set_tensor("model", model_.values());
        checkpoint.save(options_.checkpoint);
    }

    const Options options_;
    const regroup::Context context_;
    const std::unique_ptr<regroup::ProcessGroup> group_;
    const example::Dataset dataset_{2048, 20};
    example::LinearRegression model_{20};
    regroup::CosineWarmRestarts schedule_;
    regroup::DistributedSampler sampler_;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("warm_restarts", "trains by cosine annealing with warm restarts.");
    flags.add("--epochs", options.epochs, {0, 1'000'000}, "epochs to train in all");
    flags.add("--stop-after", options.stop_after, {0, 1'000'000}, "end early, at this epoch");
    flags.add("--t-0", options.t_0, {1, 1'000'000}, "epochs until the first restart");
    flags.add("--t-mult", options.t_mult, {1, 1000}, "how much longer each period is");
    flags.add("--learning-rate", options.learning_rate, "at the start of each period (0.1)");
    flags.add("--eta-min", options.eta_min, "the rate that each period falls to (0.001)");
    flags.add("--checkpoint", options.checkpoint, "resume from it if it exists; save to it");
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        Trainer(options, context).run();
    });
}
