// SPDX-License-Identifier: Apache-2.0
// Learns a table of numbers, and survives what a cluster does: docs/elastic.md explains it.
#include <regroup/regroup.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::uint64_t kSteps = 400;
constexpr std::uint64_t kBatch = 64;  // Samples in a step, of all ranks together.
constexpr std::uint64_t kSamples = kSteps * kBatch;
constexpr std::uint64_t kSaveEvery = 100;       // Steps.
constexpr const char* kFile = "table.regroup";  // In a folder that all nodes reach.

float target_of(std::uint64_t sample) {
    return static_cast<float>(sample % 100) / 100;
}

int train() {
    std::vector<float> table(kSamples);
    std::vector<float> gradient(kSamples);
    // Each rank has a part of Adam's moments, and a copy of another rank's part.
    regroup::ShardedOptimizer optimizer(
        {{.master = std::span(table), .gradient = std::span(gradient)}},
        regroup::AdamOptions{.learning_rate = 0.01}, {.replicate = true});
    regroup::ElasticLoop loop;
    loop.register_state("table", std::span(table));

    // All processes begin from the checkpoint, if there is one.
    if (const auto saved = regroup::Checkpoint::load_if_present(kFile)) {
        saved->read_tensor("table", std::span(table));
        optimizer.load(*saved);
        const auto step = static_cast<std::uint64_t>(saved->integer("step"));
        loop.resume_at(step, step * kBatch);
    }
    // All ranks call it: it gathers the moments on rank 0, which writes the file.
    const auto save = [&](const regroup::Context& context, std::uint64_t step) {
        regroup::Checkpoint checkpoint;
        optimizer.save(checkpoint);
        if (context.is_main_process()) {
            checkpoint.set_integer("step", static_cast<std::int64_t>(step));
            checkpoint.set_tensor("table", std::span<const float>(table));
            checkpoint.save(kFile, {.round = context.round});
        }
    };

    std::uint64_t last_save = 0;
    const auto begin_round = [&](const regroup::ElasticRound& round) {
        std::fprintf(stderr, "rank %u of %u, pid %d, from step %llu\n", round.context->rank,
                     round.context->world_size, ::getpid(),
                     static_cast<unsigned long long>(round.step));
        try {
            optimizer.shard(*round.group);  // Divides the moments anew.
        } catch (const regroup::Error& error) {
            if (error.code() == regroup::Errc::system) {
                // Both ranks that had a part are lost, so the state is. New processes begin from
                // the checkpoint, which costs no restart.
                regroup::report_fatal(regroup::FatalKind::retry, error.what());
            }
            throw;  // A rank was lost meanwhile: the loop goes on in the next round.
        }
        last_save = round.step;
    };
    const auto carry_out = [&](regroup::ElasticStep& step) {
        if (step.number() == kSteps) {
            return step.finish();
        }
        if (step.number() % kSaveEvery == 0 && step.number() != last_save) {
            save(step.context(), step.number());
            last_save = step.number();
        }
        const regroup::DistributedSampler sampler({.dataset_count = kSamples,
                                                   .rank = step.context().rank,
                                                   .world_size = step.context().world_size});
        gradient.assign(kSamples, 0);
        for (const std::uint64_t sample : sampler.shard(step.take(kBatch))) {
            gradient[sample] += table[sample] - target_of(sample);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // As if it were larger.
        step.group().all_reduce(std::span(gradient), regroup::ReduceOp::sum).wait();
        optimizer.prepare();                      // Exchanges data, and changes nothing.
        step.commit([&] { optimizer.apply(); });  // On all ranks, or on none.
    };
    const auto hand_over = [&](const regroup::ElasticDeparture& departure) {
        if (departure.all_leave()) {
            save(*departure.context, departure.step);  // The job will begin again from there.
        } else {
            optimizer.shard(*departure.group, departure.ranks);
        }
    };
    const regroup::Ending ending =
        loop.run({.on_round = begin_round, .on_step = carry_out, .on_departure = hand_over});
    if (ending == regroup::Ending::finished) {
        double error = 0;
        for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
            const double difference = static_cast<double>(table[sample] - target_of(sample));
            error += difference * difference;
        }
        std::printf("finished after %llu steps, error %.9g\n",
                    static_cast<unsigned long long>(kSteps), error);
    }
    return 0;
}

}  // namespace

int main() {
    try {
        return train();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "elastic_sharded: %s\n", error.what());
        return 1;
    }
}
