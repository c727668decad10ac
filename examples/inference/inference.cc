// SPDX-License-Identifier: Apache-2.0
//
// inference: all ranks predict a whole data set, and the output has the order of the data set.
//
//     regroup run --standalone --nproc-per-node=3 inference --output predictions.txt
//
// The file is the same, byte for byte, for any number of ranks.

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>
#include <regroup/evaluation.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <fstream>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
    std::int64_t samples = 1003;
    std::int64_t show = 5;
    std::string output;
};

void write(const std::string& name, std::span<const float> predictions) {
    std::ofstream file(name);
    for (const float prediction : predictions) {
        file << prediction << '\n';
    }
    file.close();
    if (!file) {
        throw regroup::Error(regroup::Errc::system, "cannot write " + name);
    }
}

void run(const Options& options, const regroup::Context& context) {
    const auto group = regroup::ProcessGroup::create("cpu", context);
    const example::Dataset dataset(static_cast<std::size_t>(options.samples), 8);
    example::LinearRegression model(dataset.feature_count());
    std::fill(model.values().begin(), model.values().end(), 0.5F);  // stands for a trained model

    const regroup::DistributedSampler sampler({.dataset_count = dataset.count(),
                                               .rank = context.rank,
                                               .world_size = context.world_size,
                                               .shuffle = false});
    std::vector<float> mine;
    for (const std::uint64_t sample : sampler.indices()) {
        mine.push_back(model.predict(dataset.input(sample)));
    }

    constexpr std::uint32_t kRoot = 0;
    std::vector<float> predictions(context.rank == kRoot ? dataset.count() : 0);
    regroup::gather_in_order(*group, std::span(mine), {.dataset_count = dataset.count()},
                             std::span(predictions), kRoot);

    regroup::run_on_main(*group, [&] {
        const std::size_t shown =
            std::min(static_cast<std::size_t>(options.show), predictions.size());
        for (std::size_t sample = 0; sample < shown; ++sample) {
            std::printf("sample %zu: %g\n", sample, double{predictions[sample]});
        }
        if (!options.output.empty()) {
            write(options.output, predictions);
            std::printf("%zu predictions in %s\n", predictions.size(), options.output.c_str());
        }
    });
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("inference", "predicts a data set with all ranks, in its order.");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--show", options.show, {0, 1 << 24}, "predictions to print");
    flags.add("--output", options.output, "file for all predictions, one per line");
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { run(options, context); });
}
