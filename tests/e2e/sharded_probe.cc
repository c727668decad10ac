// SPDX-License-Identifier: Apache-2.0
//
// An elastic worker whose optimizer's state is divided among the ranks, until the file
// $PROBE_DIR/finish is there. It writes marks as elastic_probe.cc does. The mark `done` says
// whether the weights have the bits of a training in one process. The argument `replicate` keeps
// each shard on two ranks. It saves one checkpoint, from which a job begins again, and writes the
// mark `later` some steps after that: from then on the checkpoint is older than what the ranks
// hold.
#include <regroup/regroup.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <poll.h>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

constexpr regroup::AdamOptions kAdam{.learning_rate = 1e-3};
constexpr std::size_t kCount = 30'000;  // Several shards.
constexpr std::uint64_t kSaveAt = 20;
constexpr std::uint64_t kLater = 25;

std::string folder() {
    const char* value = std::getenv("PROBE_DIR");
    return value != nullptr ? value : ".";
}

std::string checkpoint_path() {
    return folder() + "/train.regroup";
}

void mark(const std::string& name, const regroup::Context& context, const std::string& facts) {
    const std::string path = folder() + "/" + name + "." + std::to_string(context.round) + "." +
                             std::to_string(context.rank);
    const std::string part = path + ".part" + std::to_string(::getpid());
    std::ofstream file(part);
    file << "pid=" << ::getpid() << "\n" << facts;
    file.close();
    std::filesystem::rename(part, path);
}

/// The same in every world.
void compute_gradient(std::uint64_t step, std::span<const float> weights,
                      std::span<float> gradient) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto noise = static_cast<float>((step * 131 + i * 7) % 997);
        gradient[i] = noise * 0x1.0p-9F - 1.0F + 0.125F * weights[i];
    }
}

std::vector<float> train_in_one_process(std::uint64_t steps) {
    std::vector<float> weights(kCount);
    std::vector<float> gradient(kCount);
    regroup::FusedOptimizer optimizer(
        {{.master = std::span(weights), .gradient = std::span(gradient)}}, kAdam);
    for (std::uint64_t step = 0; step < steps; ++step) {
        compute_gradient(step, weights, gradient);
        optimizer.step();
    }
    return weights;
}

void train(bool replicate) {
    std::vector<float> weights(kCount);
    std::vector<float> gradient(kCount);
    regroup::ShardedOptimizer optimizer(
        {{.master = std::span(weights), .gradient = std::span(gradient)}}, kAdam,
        {.replicate = replicate});
    regroup::ElasticLoop loop;
    loop.register_state("weights", std::span(weights));
    if (const auto saved = regroup::Checkpoint::load_if_present(checkpoint_path())) {
        saved->read_tensor("weights", std::span(weights));
        optimizer.load(*saved);
        loop.resume_at(static_cast<std::uint64_t>(saved->integer("step")), 0);
    }
    regroup::Context present;
    std::uint64_t steps = 0;
    const auto save = [&](std::uint64_t step) {
        regroup::Checkpoint checkpoint;
        optimizer.save(checkpoint);
        if (present.rank == 0) {
            checkpoint.set_integer("step", static_cast<std::int64_t>(step));
            checkpoint.set_tensor("weights", std::span<const float>(weights));
            checkpoint.save(checkpoint_path(), {.round = present.round});
        }
    };
    const regroup::Ending ending = loop.run({
        .on_round =
            [&](const regroup::ElasticRound& round) {
                present = *round.context;
                try {
                    optimizer.shard(*round.group);
                } catch (const regroup::Error& error) {
                    if (error.code() == regroup::Errc::system) {  // A shard is lost.
                        regroup::report_fatal(regroup::FatalKind::retry, error.what());
                    }
                    throw;
                }
                mark("up", present, "step=" + std::to_string(round.step) + "\n");
            },
        .on_step =
            [&](regroup::ElasticStep& step) {
                std::vector<float> over{std::filesystem::exists(folder() + "/finish") ? 1.0F
                                                                                      : 0.0F};
                step.group().all_reduce(std::span(over), regroup::ReduceOp::max).wait();
                if (over[0] > 0) {
                    steps = step.number();
                    return step.finish();
                }
                ::poll(nullptr, 0, 2);
                compute_gradient(step.number(), weights, gradient);
                optimizer.prepare();
                step.commit([&] { optimizer.apply(); });
                if (step.number() == kSaveAt) {
                    save(step.number());
                }
                if (step.number() == kLater) {
                    mark("later", present, "");
                }
            },
        .on_departure =
            [&](const regroup::ElasticDeparture& departure) {
                optimizer.shard(*departure.group, departure.ranks);
            },
        .on_leave =
            [&](const regroup::ElasticLeave& leave) {
                mark("left", present, "step=" + std::to_string(leave.step) + "\n");
            },
    });
    if (ending == regroup::Ending::finished) {
        const bool same = weights == train_in_one_process(steps);
        mark("done", present,
             "step=" + std::to_string(steps) + "\nsame=" + (same ? "yes" : "no") + "\n");
    }
}

}  // namespace

int main(int count, char** values) {
    ::alarm(150);  // The process ends by itself, even if the code under test fails to end it.
    try {
        train(count > 1 && values[1] == std::string("replicate"));
    } catch (const std::exception& error) {
        std::cerr << "sharded_probe: " << error.what() << std::endl;
        return 1;
    }
}
