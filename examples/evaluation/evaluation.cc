// SPDX-License-Identifier: Apache-2.0
//
// evaluation: the loss and the accuracy of a model over a data set that does not divide evenly.
//
//     regroup run --standalone --nproc-per-node=3 evaluation
//
// Each rank scores its shard in batches. The results equal those of a single process, to the last
// bit. For comparison, it also prints the average of the ranks' averages. There, samples that pad
// the shards count twice, and those in a short last batch have more weight.

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/evaluation.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include "flags.h"
#include "linear_regression.h"

namespace {

struct Options {
    std::int64_t samples = 1003;
    std::int64_t batch_size = 32;
};

// A model to evaluate. Every rank trains it alone, in the same way.
example::LinearRegression some_model(const example::Dataset& dataset) {
    example::LinearRegression model(dataset.feature_count());
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

void run(const Options& options, const regroup::Context& context) {
    const auto group = regroup::ProcessGroup::create("cpu", context);
    const example::Dataset dataset(static_cast<std::size_t>(options.samples), 8);
    const example::LinearRegression model = some_model(dataset);

    // Every rank gets the same number of samples. The last ones may be repeated.
    const regroup::DistributedSampler sampler({.dataset_count = dataset.count(),
                                               .rank = context.rank,
                                               .world_size = context.world_size,
                                               .shuffle = false});
    regroup::Evaluator evaluator(*group, dataset.count(), {"loss", "right"});
    const std::vector<std::uint64_t> samples = sampler.indices();
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
    regroup::log_main(context, "samples " + std::to_string(result.sample_count()));
    regroup::log_main(context, "mean loss " + text("%.17g", result.mean("loss")));
    regroup::log_main(context, "accuracy " + text("%.17g", result.mean("right")) + " (" +
                                   text("%.0f", result.sum("right")) + " right)");
    regroup::log_main(context, "the mean of the ranks' means would be " + text("%.17g", naive));
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("evaluation", "scores a data set with all ranks as if with one.");
    flags.add("--samples", options.samples, {1, 1 << 24}, "of the data set");
    flags.add("--batch-size", options.batch_size, {1, 1 << 20}, "samples per batch on each rank");
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { run(options, context); });
}
