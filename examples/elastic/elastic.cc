// SPDX-License-Identifier: Apache-2.0
// Elastic training that survives the loss of workers. Start it, kill some workers, and compare the
// last line with that of an undisturbed run:
//
//     regroup run --standalone --nproc-per-node=4 elastic --steps 2000 --step-ms 5
#include <regroup/regroup.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

#include "flags.h"
#include "model.h"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Options {
    std::int64_t steps = 1000;
    std::int64_t batch = 16;
    std::int64_t step_ms = 0;
    std::int64_t state_mb = 0;
    std::string checkpoint;
    std::int64_t checkpoint_every = 100;
    std::int64_t compare_every = 0;
    std::int64_t fail_at = -1;
    std::int64_t fail_rank = 1;
    std::int64_t hang_at = -1;
    std::int64_t slow_rank = -1;
    std::int64_t slow_percent = 50;
    std::string section;
};

class Training {
   public:
    explicit Training(const Options& options)
        : options_(options),
          model_(static_cast<std::size_t>(options.state_mb) << 17U),
          loop_({.compare_every = static_cast<std::uint64_t>(options.compare_every)}) {
        loop_.register_state("weights", regroup::TensorView(model_.weights()));
        loop_.register_state("momentum", regroup::TensorView(model_.momentum()));
        loop_.register_state("ballast", regroup::TensorView(model_.ballast()));
        loop_.register_state("totals", regroup::TensorView(model_.totals()));
    }

    int run() {
        load();
        const regroup::Ending ending = loop_.run({
            .on_round = [this](const regroup::ElasticRound& round) { begin_round(round); },
            .on_step = [this](regroup::ElasticStep& step) { carry_out(step); },
            .on_leave =
                [this](const regroup::ElasticLeave& leave) {
                    std::printf("leaving after step %" PRIu64 ": %s\n", leave.step,
                                leave.reason.c_str());
                    leave_behind(leave.step);
                },
        });
        return ending == regroup::Ending::finished ? finish() : 0;
    }

   private:
    void begin_round(const regroup::ElasticRound& round) {
        rank_ = round.context->rank;
        local_rank_ = round.context->local_rank;
        round_ = round.context->round;
        steps_in_round_ = 0;
        if (round.first) {
            joined_at_ = round.step;
            first_rank_ = rank_;
        }
        regroup::DistributedSampler& sampler = sampler_.emplace(regroup::SamplerOptions{
            .dataset_count = static_cast<std::uint64_t>(options_.steps * options_.batch),
            .rank = round.context->rank,
            .world_size = round.context->world_size});
        sampler.set_epoch(0);
        std::printf("round %" PRIu64 ": rank %u of %u, pid %d, from step %" PRIu64 "\n", round_,
                    rank_, round.context->world_size, ::getpid(), round.step);
    }

    void carry_out(regroup::ElasticStep& step) {
        if (step.number() >= static_cast<std::uint64_t>(options_.steps)) {
            return step.finish();
        }
        example::Gradient gradient;
        const auto batch = step.take(static_cast<std::uint64_t>(options_.batch));
        for (const std::uint64_t sample : sampler_->shard(batch)) {
            model_.add_sample(sample, gradient);
        }
        {
            std::optional<regroup::ElasticStep::Section> section;
            if (!options_.section.empty()) {
                section.emplace(step, options_.section);
            }
            work();
        }
        fail_as_told(step.number());
        step.group()
            .all_reduce(regroup::TensorView(gradient.numbers()), regroup::ReduceOp::sum)
            .wait();
        step.commit([&] { model_.step(gradient); });
        after_commit(step, gradient);
    }

    /// Stands for the time that a real model would take.
    void work() const {
        auto time = std::chrono::microseconds(options_.step_ms * 1000);
        if (rank_ == options_.slow_rank) {
            time += time * options_.slow_percent / 100;
        }
        std::this_thread::sleep_for(time);
    }

    void fail_as_told(std::uint64_t step) const {
        // The replacement begins with the same step, and must not fail again.
        const bool there_before = joined_at_ < step || step == 0;
        if (first_rank_ != options_.fail_rank || !there_before) {
            return;
        }
        if (static_cast<std::int64_t>(step) == options_.fail_at) {
            std::raise(SIGKILL);
        }
        if (static_cast<std::int64_t>(step) == options_.hang_at) {
            std::raise(SIGSTOP);
        }
    }

    void after_commit(regroup::ElasticStep& step, const example::Gradient& gradient) {
        const std::uint64_t committed = step.number();
        const auto mean = gradient.loss / gradient.samples;
        const double loss = static_cast<double>(mean) / (1 << example::kFraction);
        step.report("loss", loss);
        const auto now = Clock::now();
        if (steps_in_round_++ == 0 && last_commit_ && rank_ == 0) {
            std::printf("round %" PRIu64 ": step %" PRIu64 " committed %.1f ms after the last\n",
                        round_, committed, Milliseconds(now - *last_commit_).count());
        }
        last_commit_ = now;
        const auto every = static_cast<std::uint64_t>(options_.checkpoint_every);
        if (rank_ == 0 && committed % every == 0) {
            std::printf("step %" PRIu64 ": loss %.6f\n", committed, loss);
            // Saving the state may take longer than any step.
            const auto section = step.section("checkpoint");
            save(committed, round_);
        }
    }

    void save(std::uint64_t step, std::uint64_t round) {
        if (options_.checkpoint.empty()) {
            return;
        }
        regroup::Checkpoint checkpoint;
        checkpoint.set_integer("step", static_cast<std::int64_t>(step));
        checkpoint.set_tensor("weights", model_.weights());
        checkpoint.set_tensor("momentum", model_.momentum());
        checkpoint.set_tensor("ballast", model_.ballast());
        checkpoint.set_tensor("totals", model_.totals());
        checkpoint.save(options_.checkpoint, {.round = round});
    }

    /// Saves the state of the leaving node; one rank of the node is enough.
    void leave_behind(std::uint64_t step) {
        if (local_rank_ != 0) {
            return;
        }
        try {
            save(step, round_);
        } catch (const regroup::Error& error) {
            if (error.code() != regroup::Errc::fenced) {
                throw;
            }
            std::printf("not saved: %s\n", error.what());  // A later round has started already.
        }
    }

    void load() {
        const auto checkpoint = options_.checkpoint.empty()
                                    ? std::nullopt
                                    : regroup::Checkpoint::load_if_present(options_.checkpoint);
        if (!checkpoint) {
            return;
        }
        checkpoint->read_tensor("weights", model_.weights());
        checkpoint->read_tensor("momentum", model_.momentum());
        checkpoint->read_tensor("ballast", model_.ballast());
        checkpoint->read_tensor("totals", model_.totals());
        const auto step = static_cast<std::uint64_t>(checkpoint->integer("step"));
        loop_.resume_at(step, step * static_cast<std::uint64_t>(options_.batch));
    }

    /// Checks that every sample was trained once.
    int finish() {
        const std::int64_t count = options_.steps * options_.batch;
        std::int64_t marks = 0;
        for (std::int64_t sample = 0; sample < count; ++sample) {
            marks += example::mark_of(static_cast<std::uint64_t>(sample));
        }
        const bool complete = model_.totals()[0] == count && model_.totals()[1] == marks;
        if (rank_ == 0) {
            std::printf("finished: %" PRId64 " steps, %" PRId64 " samples%s, parameters %016" PRIx64
                        "\n",
                        options_.steps, model_.totals()[0],
                        complete ? ", each once" : ": SOME WERE LOST OR DOUBLED", model_.hash());
        }
        return complete ? 0 : 1;
    }

    const Options options_;
    example::Model model_;
    regroup::ElasticLoop loop_;
    std::optional<regroup::DistributedSampler> sampler_;
    std::uint32_t rank_ = 0;
    std::uint32_t first_rank_ = 0;
    std::uint32_t local_rank_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t joined_at_ = 0;
    std::uint64_t steps_in_round_ = 0;
    std::optional<Clock::time_point> last_commit_;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("elastic",
                         "trains a small model, whatever happens to its workers. The "
                         "last line is the same for every membership.");
    flags.add("--steps", options.steps, {.min = 1}, "steps to train");
    flags.add("--batch", options.batch, {.min = 1, .max = 100'000},
              "samples of all ranks per step");
    flags.add("--step-ms", options.step_ms, {.min = 0, .max = 60'000}, "pretended work per step");
    flags.add("--state-mb", options.state_mb, {.min = 0, .max = 65'536}, "parameters without use");
    flags.add("--checkpoint", options.checkpoint, "file to save to, and to go on from");
    flags.add("--checkpoint-every", options.checkpoint_every, {.min = 1}, "steps between savings");
    flags.add("--compare-every", options.compare_every, {.min = 0}, "compare replicas; 0: seldom");
    flags.add("--fail-at", options.fail_at, {.min = 0}, "step in which a rank kills itself, once");
    flags.add("--hang-at", options.hang_at, {.min = 0}, "step in which it stops instead");
    flags.add("--fail-rank", options.fail_rank, {.min = 0},
              "which rank that is, in its first round");
    flags.add("--slow-rank", options.slow_rank, {.min = 0}, "rank whose work takes longer");
    flags.add("--slow-percent", options.slow_percent, {.min = 0, .max = 1000}, "how much longer");
    flags.add("--section", options.section, "name of the section that the work is in");
    int code = 0;
    const int status = example::run_main(
        flags, argc, argv, [&](const regroup::Context&) { code = Training(options).run(); });
    return status != 0 ? status : code;
}
