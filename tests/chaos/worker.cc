// SPDX-License-Identifier: Apache-2.0
//
// A rank of the chaos job:
//
//     chaos_worker --records=DIR --end=DIAL [--steps=N] [--step-us=N] [--weights=N]
//                  [--floats=N] [--restarted|--slow-end --checkpoint=FILE]
//                  [--save-interval=N --snapshot-folder=DIR]
#include "tests/chaos/worker.h"

#include <regroup/checkpoint.h>
#include <regroup/error.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <semaphore.h>
#include <span>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "rendezvous/base/random.h"

namespace regroup::chaos {
namespace {

// State of the SIGTERM handler.
std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);
sem_t asked_to_end;

/// Reads the value of `--name=value`; false if `word` is another flag.
bool take(std::string_view word, std::string_view name, std::string& value) {
    const std::string start = "--" + std::string(name) + "=";
    if (!word.starts_with(start)) {
        return false;
    }
    value = word.substr(start.size());
    return true;
}

bool parse(std::span<char*> words, JobOptions& options) {
    for (const std::string_view word : words) {
        std::string number;
        if (word == "--restarted" || word == "--slow-end") {
            options.restarted = true;
            options.slow_end = word == "--slow-end";
        } else if (take(word, "steps", number)) {
            options.steps = std::strtoull(number.c_str(), nullptr, 10);
        } else if (take(word, "step-us", number)) {
            options.step_us = std::atoll(number.c_str());
        } else if (take(word, "weights", number)) {
            options.weights = std::strtoull(number.c_str(), nullptr, 10);
        } else if (take(word, "save-interval", number)) {
            options.save_interval = std::strtoull(number.c_str(), nullptr, 10);
        } else if (take(word, "floats", number)) {
            options.floats = std::strtoull(number.c_str(), nullptr, 10);
        } else if (!take(word, "records", options.logs) && !take(word, "end", options.end) &&
                   !take(word, "checkpoint", options.checkpoint) &&
                   !take(word, "snapshot-folder", options.snapshot_folder)) {
            return false;
        }
    }
    return !options.logs.empty() && !options.end.empty() &&
           (!options.restarted || !options.checkpoint.empty());
}

}  // namespace

bool Job::compute(const Context& context, ProcessGroup& group, std::uint64_t step,
                  const SampleRange& samples) {
    std::fill(gradient_.begin(), gradient_.end(), 0);
    const bool over = (options_.steps != 0 && step >= options_.steps) || end_.get() != 0;
    gradient_.back() = over ? 1 : 0;
    const DistributedSampler sampler(
        {.dataset_count = kDataset, .rank = context.rank, .world_size = context.world_size});
    const std::vector<std::uint64_t> shard = sampler.shard(samples);
    for (const std::uint64_t sample : shard) {
        model_.add_gradient(sample, gradient_);
    }
    if (options_.step_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(options_.step_us));
    }
    group.all_reduce(TensorView(std::span(gradient_)), ReduceOp::sum).wait();
    if (gradient_.back() != 0) {
        return false;
    }
    if (!floats_.empty()) {
        floats_.compute(step, context.rank, shard, group);
    }
    return true;
}

void Job::apply(std::uint64_t step) {
    model_.apply(std::span<const std::int64_t>(gradient_).first(options_.weights));
    floats_.apply(step);
}

void Job::log(RecordKind kind, const Context& context, std::uint64_t step,
              const SampleRange& samples) {
    log_.write({.kind = kind,
                .rank = context.rank,
                .world_size = context.world_size,
                .round = context.round,
                .step = step,
                .samples_begin = samples.first,
                .samples_end = samples.last,
                .digest = model_.digest(),
                .floats = floats_.empty() ? 0 : floats_.digest()});
}

void Job::end(RecordKind how, const Context& context, std::uint64_t steps) {
    log(how, context, steps);
    std::printf("rank %u of %u: %s after %llu steps, parameters %016llx\n", context.rank,
                context.world_size, how == RecordKind::finished ? "finished" : "left",
                static_cast<unsigned long long>(steps),
                static_cast<unsigned long long>(model_.digest()));
    std::fflush(stdout);
}

// A signal handler stops the training thread at once. Another thread might run late on a busy
// machine.
void end_slowly() {
    constexpr std::uint64_t kMilliseconds = 2500;
    constexpr std::uint64_t kOneInSoManyResists = 10;
    constexpr std::chrono::milliseconds kForce(60'000);
    Random random(static_cast<std::uint64_t>(::getpid()));
    const bool resists = random.below(kOneInSoManyResists) == 0;
    const auto lasts = resists ? kForce : std::chrono::milliseconds(random.below(kMilliseconds));
    ::sem_init(&asked_to_end, 0, 0);
    sigset_t signals;
    sigset_t before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &signals, &before);
    std::thread([lasts] {
        while (::sem_wait(&asked_to_end) != 0) {
        }
        std::this_thread::sleep_for(lasts);
        std::_Exit(128 + SIGTERM);
    }).detach();
    struct sigaction action{};
    action.sa_flags = SA_RESTART;
    action.sa_handler = [](int /*signal*/) {
        asked.store(true);
        ::sem_post(&asked_to_end);
    };
    ::sigaction(SIGTERM, &action, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pass_unless_ending() {
    while (asked.load()) {
        ::pause();
    }
}

int train_restarted(Job& job) {
    const Context context = Context::from_environment();
    std::uint64_t step = 0;
    const bool has_floats = !job.floats().empty();
    if (const auto saved = Checkpoint::load_if_present(job.options().checkpoint)) {
        step = static_cast<std::uint64_t>(saved->integer("step"));
        saved->read_tensor("weights", TensorView(job.model().weights()));
        saved->read_tensor("momentum", TensorView(job.model().momentum()));
        if (has_floats) {
            saved->read_tensor("floats", TensorView(job.floats().values()));
        }
    }
    const auto group = ProcessGroup::create("cpu", context, {.timeout = kGroupTimeout});
    // A rank of an earlier round may still change the file between the reads of two ranks.
    auto first = static_cast<std::int64_t>(step);
    group->broadcast(TensorView(std::span<std::int64_t>(&first, 1)), 0).wait();
    group->broadcast(TensorView(job.model().weights()), 0).wait();
    group->broadcast(TensorView(job.model().momentum()), 0).wait();
    if (has_floats) {
        group->broadcast(TensorView(job.floats().values()), 0).wait();
    }
    step = static_cast<std::uint64_t>(first);
    job.log(RecordKind::round, context, step);
    for (;; ++step) {
        const SampleRange samples{step * kBatch, (step + 1) * kBatch};
        if (!job.compute(context, *group, step, samples)) {
            break;
        }
        pass_unless_ending();
        job.apply(step);
        job.log(RecordKind::step, context, step, samples);
        if (context.is_main_process()) {
            Checkpoint checkpoint;
            checkpoint.set_integer("step", static_cast<std::int64_t>(step + 1));
            checkpoint.set_tensor("weights", TensorView(job.model().weights()));
            checkpoint.set_tensor("momentum", TensorView(job.model().momentum()));
            if (has_floats) {
                checkpoint.set_tensor("floats", TensorView(job.floats().values()));
            }
            checkpoint.save(job.options().checkpoint);
        }
    }
    job.end(RecordKind::finished, context, step);
    return 0;
}

}  // namespace regroup::chaos

int main(int argc, char** argv) {
    using namespace regroup::chaos;
    JobOptions options;
    if (!parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1), options)) {
        std::fprintf(stderr,
                     "usage: chaos_worker --records=DIR --end=DIAL [--steps=N] [--step-us=N] "
                     "[--weights=N] [--floats=N] [--restarted|--slow-end --checkpoint=FILE] "
                     "[--save-interval=N --snapshot-folder=DIR]\n");
        return 2;
    }
    if (options.slow_end) {
        end_slowly();
    }
    try {
        Job job(options);
        if (options.save_interval > 0) {
            return train_from_snapshots(job);
        }
        return options.restarted ? train_restarted(job) : train_in_place(job);
    } catch (const regroup::Error& error) {
        pass_unless_ending();
        std::fprintf(stderr, "chaos_worker: %s\n", error.what());
        return 1;
    }
}
