// SPDX-License-Identifier: Apache-2.0
//
// scoring: a data set that does not divide evenly goes through a model on all ranks.
//
//     regroup run --standalone --nproc-per-node=3 scoring evaluate
//     regroup run --standalone --nproc-per-node=3 scoring predict --output predictions.txt

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

using example::Dataset;
using example::LinearRegression;
using regroup::Context;
using regroup::log_main;
using regroup::ProcessGroup;

struct Options {
    std::int64_t samples = 1003;
    std::int64_t batch_size = 32;
    std::int64_t show = 5;
    std::string output;
};

// The samples of this rank. Every rank gets the same number. The last ones may be repeated.
std::vector<std::uint64_t> shard_of(const Context& context, const Dataset& dataset) {
    return regroup::DistributedSampler({.dataset_count = dataset.count(),
                                        .rank = context.rank,
                                        .world_size = context.world_size,
                                        .shuffle = false})
        .indices();
}

// ---------------------------------------------------------------------------------------------------
// evaluate: the loss and the accuracy. The results equal those of a single process, to the last
// bit. For comparison, it also prints the average of the ranks' averages. There, samples that pad
// the shards count twice, and those in a short last batch have more weight.

// A model to evaluate. Every rank trains it alone, in the same way.
LinearRegression some_model(const Dataset& dataset) {
    LinearRegression model(dataset.feature_count());
    for (std::uint64_t sample = 0; sample < dataset.count(); ++sample) {
        model.forward_backward(dataset, std::span(&sample, 1), 1.0F);
        model.apply_gradients(0.01);
    }
    return model;
}

std::string text(const char* format, double number) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, format, number);
    return buffer;
}

void score(const Options& options, const Context& context) {
    const auto group = ProcessGroup::create("cpu", context);
    const Dataset dataset(static_cast<std::size_t>(options.samples), 8);
    const LinearRegression model = some_model(dataset);

    regroup::Evaluator evaluator(*group, dataset.count(), {"loss", "right"});
    const std::vector<std::uint64_t> samples = shard_of(context, dataset);
    const auto batch_size = static_cast<std::size_t>(options.batch_size);
    double naive = 0.0;  // the mean of the batches' means
    std::size_t batch_count = 0;
    for (std::size_t first = 0; first < samples.size(); first += batch_size) {
        double batch_loss = 0.0;
        const std::size_t last = std::min(first + batch_size, samples.size());
        for (std::size_t i = first; i < last; ++i) {
            const std::size_t sample = samples[i];
            const double loss = model.squared_error(dataset, sample);
            const bool right =
                (model.predict(dataset.input(sample)) > 0.0F) == (dataset.target(sample) > 0.0F);
            evaluator.add({loss, right ? 1.0 : 0.0});
            batch_loss += loss;
        }
        naive += batch_loss / static_cast<double>(last - first);
        ++batch_count;
    }
    const regroup::EvaluationResult result = evaluator.finish();

    naive /= static_cast<double>(batch_count);
    group->all_reduce(std::span(&naive, 1), regroup::ReduceOp::avg).wait();
    log_main(context, "samples " + std::to_string(result.sample_count()));
    log_main(context, "mean loss " + text("%.17g", result.mean("loss")));
    log_main(context, "accuracy " + text("%.17g", result.mean("right")) + " (" +
                          text("%.0f", result.sum("right")) + " right)");
    log_main(context, "the mean of the ranks' means would be " + text("%.17g", naive));
}

int evaluate(int argc, char** argv) {
    Options options;
    example::Flags flags("scoring evaluate", "scores a data set with all ranks as if with one.");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--batch-size", options.batch_size, {1, 1 << 20}, "samples per batch on each rank");
    return example::run_main(flags, argc, argv,
                             [&](const Context& context) { score(options, context); });
}

// ---------------------------------------------------------------------------------------------------
// predict: the output has the order of the data set. The file is the same, byte for byte, for any
// number of ranks.

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

void predict_all(const Options& options, const Context& context) {
    const auto group = ProcessGroup::create("cpu", context);
    const Dataset dataset(static_cast<std::size_t>(options.samples), 8);
    LinearRegression model(dataset.feature_count());
    std::fill(model.values().begin(), model.values().end(), 0.5F);  // stands for a trained model

    std::vector<float> mine;
    for (const std::uint64_t sample : shard_of(context, dataset)) {
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

int predict(int argc, char** argv) {
    Options options;
    example::Flags flags("scoring predict", "predicts a data set with all ranks, in its order.");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--show", options.show, {0, 1 << 24}, "predictions to print");
    flags.add("--output", options.output, "file for all predictions, one per line");
    return example::run_main(flags, argc, argv,
                             [&](const Context& context) { predict_all(options, context); });
}

}  // namespace

int main(int argc, char** argv) {
    return example::run_command(
        "scoring",
        {{"evaluate", "the same digits for every number of ranks", evaluate},
         {"predict", "predictions in the order of the data set", predict}},
        argc, argv);
}
