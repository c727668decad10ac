// SPDX-License-Identifier: Apache-2.0
//
// partitioner: data-parallel training by hand: a partition of the data for each rank, and
// average_gradients after every backward pass.
//
//     regroup run --standalone --nproc-per-node=4 partitioner
//
// The global batch of 128 is divided among the ranks, so that their number changes the speed of an
// epoch, but not the steps.

#include <regroup/context.h>
#include <regroup/data_partitioner.h>
#include <regroup/process_group.h>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
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

Partition partition_dataset(const Options& options, const regroup::Context& context) {
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
void average_gradients(regroup::ProcessGroup& group, example::LinearRegression& model) {
    model.device_gradients().upload();
    for (const regroup::Parameter& parameter : model.parameters()) {
        group.all_reduce(parameter.gradient, regroup::ReduceOp::sum).wait();
    }
    model.device_gradients().download();
    for (float& gradient : model.gradients()) {
        gradient /= static_cast<float>(group.world_size());
    }
}

void run(const Options& options, const regroup::Context& context) {
    const auto group = regroup::ProcessGroup::create(options.backend, context);
    const example::Dataset dataset(static_cast<std::size_t>(options.samples), 20);
    const Partition partition = partition_dataset(options, context);
    if (partition.samples.empty()) {
        throw example::UsageError("--samples: too few for a partition on every rank");
    }
    example::LinearRegression model(dataset.feature_count(), group->device());
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

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("partitioner", "trains on one partition of the data for each rank.");
    flags.add("--epochs", options.epochs, {0, 1'000'000}, "epochs to train");
    flags.add("--global-batch", options.global_batch, {1, 1 << 20},
              "samples per step, over all ranks");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--learning-rate", options.learning_rate, "of SGD (0.01)");
    flags.add("--momentum", options.momentum, "of SGD (0.5)");
    example::add_backend(flags, options.backend);
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { run(options, context); });
}
