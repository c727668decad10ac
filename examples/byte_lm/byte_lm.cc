// SPDX-License-Identifier: Apache-2.0
//
// byte_lm: a small language model, trained data-parallel with the regroup worker SDK.
//
//     byte_lm --data book.txt                                           alone
//     regroup run --standalone --nproc-per-node=4 byte_lm --data book.txt --checkpoint book.ckpt
//
// The mathematics is in model.h. This file makes it a distributed, restartable job:
//
//   - Context has the rank of this process, ProcessGroup connects it with the others;
//   - DistributedSampler divides each step's global batch, which is the same for every world size;
//   - DistributedDataParallel starts the replicas equal and sums their gradients during backward;
//   - Checkpoint lets a restarted job resume on any number of ranks.
//
// If a peer is lost, the next collective throws. This process then prints the error and exits with
// code 1. The launcher starts the next round, which resumes from the checkpoint.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <unistd.h>

#include "flags.h"
#include "model.h"

namespace byte_lm {
namespace {

using example::UsageError;
using regroup::Checkpoint;
using regroup::Context;
using regroup::ProcessGroup;
using regroup::ReduceOp;
using regroup::TensorView;

constexpr std::size_t kEvaluationSamplesMax = 4096;
constexpr std::size_t kEvaluationBatch = 256;
constexpr std::size_t kRecentLosses = 50;  // "final loss" is the mean over these steps
// At the default sizes this makes two buckets: the output layer's gradients are sent while those of
// the hidden layer and the embedding are computed.
constexpr std::size_t kBucketBytes = std::size_t{160} << 10U;

/// The flags; the values here are the defaults.
struct Options {
    std::vector<std::string> data;
    std::int64_t steps = 600;
    std::int64_t global_batch = 128;
    double learning_rate = 0.1;
    std::string checkpoint;
    std::int64_t checkpoint_every = 50;
    std::int64_t seed = 1;
    std::string backend = "cpu";
    std::int64_t context = 8;
    std::int64_t embedding = 16;
    std::int64_t hidden = 128;
    std::int64_t log_every = 20;
    std::int64_t step_delay_ms = 0;
    std::string save_parameters;
};

example::Flags flags_of(Options& options) {
    example::Flags flags("byte_lm",
                         "trains a small language model on the bytes of text files, data-parallel\n"
                         "over however many ranks it is launched with, and goes on from its\n"
                         "checkpoint when restarted.");
    flags.add("--data", options.data, "text to learn, one file or several (required)");
    flags.add("--steps", options.steps, {.min = 1}, "steps to train in all");
    flags.add("--global-batch", options.global_batch, {1, 1 << 20},
              "samples per step, over all ranks together");
    flags.add("--learning-rate", options.learning_rate, "of SGD with momentum 0.9");
    flags.add("--context", options.context, {1, 1024}, "bytes that the model sees");
    flags.add("--embedding", options.embedding, {1, 4096}, "numbers that stand for a byte");
    flags.add("--hidden", options.hidden, {1, 65536}, "width of the hidden layer");
    flags.add("--seed", options.seed, {}, "of the weights and of the samples' order");
    flags.add("--backend", options.backend, "of the process group, for buffers in host memory");
    flags.add("--checkpoint", options.checkpoint, "resume from it if it exists; save to it");
    flags.add("--checkpoint-every", options.checkpoint_every, {.min = 1},
              "steps between checkpoints");
    flags.add("--save-parameters", options.save_parameters, "where to put the trained model");
    flags.add("--log-every", options.log_every, {.min = 1}, "steps between progress lines");
    flags.add("--step-delay-ms", options.step_delay_ms, {0, 60'000},
              "pause after each step, to watch at leisure");
    return flags;
}

// ---------------------------------------------------------------------------------------------------
// The data: one long string of bytes. Sample i is the window that begins at byte i.

class Text {
   public:
    Text(const std::vector<std::string>& files, std::int64_t context)
        : window_bytes_(static_cast<std::size_t>(context) + 1) {
        for (const std::string& name : files) {
            std::ifstream file(name, std::ios::binary);
            bytes_.insert(bytes_.end(), std::istreambuf_iterator<char>(file), {});
            if (!file.is_open() || file.bad()) {
                throw UsageError("--data: cannot read " + name);
            }
        }
        if (bytes_.size() < window_bytes_) {
            throw UsageError("--data: " + std::to_string(bytes_.size()) +
                             " bytes are too few for --context " + std::to_string(context));
        }
    }

    [[nodiscard]] std::size_t byte_count() const { return bytes_.size(); }
    [[nodiscard]] std::size_t sample_count() const { return bytes_.size() - window_bytes_ + 1; }
    [[nodiscard]] const std::uint8_t* window(std::size_t sample) const { return &bytes_[sample]; }

   private:
    std::vector<std::uint8_t> bytes_;
    std::size_t window_bytes_;
};

// ---------------------------------------------------------------------------------------------------
// The progress that rank 0 shows: on a terminal a bar on one line, otherwise a line per report.

class Progress {
   public:
    Progress(const Options& options, std::uint32_t world_size)
        : options_(options), world_size_(world_size) {}

    void report(std::int64_t step, double loss) {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - reported_at_).count();
        const auto samples = static_cast<double>((step - reported_step_) * options_.global_batch);
        reported_at_ = now;
        reported_step_ = step;
        if (is_terminal_) {
            const auto filled = static_cast<std::size_t>(kBarWidth * step / options_.steps);
            std::printf("\r\033[K[%s%s] ", std::string(filled, '#').c_str(),
                        std::string(std::size_t{kBarWidth} - filled, '.').c_str());
        }
        std::printf("step %ld/%ld  loss %.4f  %.0f samples/s  world %u%s", step, options_.steps,
                    loss, samples / seconds, world_size_,
                    is_terminal_ && step < options_.steps ? "" : "\n");
        std::fflush(stdout);
    }

    void start_at(std::int64_t step) {
        reported_at_ = std::chrono::steady_clock::now();
        reported_step_ = step;
    }

   private:
    static constexpr std::int64_t kBarWidth = 30;

    const Options& options_;
    const std::uint32_t world_size_;
    const bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
    std::chrono::steady_clock::time_point reported_at_;
    std::int64_t reported_step_ = 0;
};

// ---------------------------------------------------------------------------------------------------
// The job.

class Trainer {
   public:
    Trainer(const Options& options, const Context& context)
        : options_(options),
          context_(context),
          text_(options.data, options.context),
          sampler_({.dataset_count = text_.sample_count(),
                    .rank = context.rank,
                    .world_size = context.world_size,
                    .seed = static_cast<std::uint64_t>(options.seed)}),
          model_({options.context, options.embedding, options.hidden},
                 static_cast<std::uint64_t>(options.seed)),
          progress_(options, context.world_size) {
        if (steps_per_epoch() == 0) {
            throw UsageError("--global-batch " + std::to_string(options.global_batch) +
                             " is more than the " + std::to_string(text_.sample_count()) +
                             " samples of the text");
        }
    }

    void run() {
        group_ = ProcessGroup::create(options_.backend, context_);
        if (context_.is_main_process()) {
            load_checkpoint();
        }
        start_replicas_equal();
        std::printf("rank %u of %u on node %u (pid %d): restart %u, %s at step %ld\n",
                    context_.rank, context_.world_size, context_.group_rank, ::getpid(),
                    context_.restart_count, step_ == 0 ? "starting" : "resuming", step_);

        progress_.start_at(step_);
        const std::int64_t first = step_;
        while (step_ < options_.steps) {
            const double loss = train_step();
            const bool is_last = step_ == options_.steps;
            if (!context_.is_main_process()) {
                continue;
            }
            if (step_ == first + 1 || step_ % options_.log_every == 0 || is_last) {
                progress_.report(step_, loss);
            }
            if (step_ % options_.checkpoint_every == 0 || is_last) {
                save_checkpoint();
            }
        }
        const double evaluation_loss = evaluate();
        if (context_.is_main_process()) {
            const double sum = std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0);
            const auto count = std::min<std::int64_t>(step_, kRecentLosses);
            std::printf("final loss %.6f over the last %ld steps\n",
                        sum / static_cast<double>(count), count);
            std::printf("evaluation loss %.6f\n", evaluation_loss);
            save_parameters();
        }
    }

   private:
    [[nodiscard]] std::int64_t steps_per_epoch() const {
        return static_cast<std::int64_t>(text_.sample_count()) / options_.global_batch;
    }

    // The constructor gives every rank the state of rank 0: weights, momentum, and the number of
    // steps. So only rank 0 needs the checkpoint file.
    void start_replicas_equal() {
        std::vector<regroup::Parameter> parameters;
        std::vector<TensorView> buffers{TensorView(&step_, 1, regroup::DType::int64),
                                        std::span<double>(recent_losses_)};
        for (Model::Tensor& tensor : model_.tensors()) {
            parameters.push_back({Model::view(tensor.value), Model::view(tensor.gradient)});
            buffers.push_back(Model::view(tensor.momentum));
        }
        // Gradients are weighted with their share of the global batch, so their sum is the mean.
        ddp_.emplace(
            *group_, std::move(parameters), std::move(buffers),
            regroup::DataParallelOptions{.bucket_bytes = kBucketBytes, .reduction = ReduceOp::sum});
    }

    // One step on one global batch. This rank computes every world_size-th sample. Returns the mean
    // loss over the whole batch.
    double train_step() {
        sampler_.set_epoch(static_cast<std::uint64_t>(step_ / steps_per_epoch()));
        const auto batch_count = static_cast<std::uint64_t>(options_.global_batch);
        const std::uint64_t first =
            static_cast<std::uint64_t>(step_ % steps_per_epoch()) * batch_count;
        Batch batch;
        for (const std::uint64_t sample : sampler_.shard({first, first + batch_count})) {
            batch.push_back(text_.window(sample));
        }

        loss_ = model_.forward(batch);
        const regroup::Work loss_sum = sum_over_ranks(loss_);
        const float weight = 1.0F / static_cast<float>(options_.global_batch);
        model_.backward(batch, weight, [this](std::size_t index) { ddp_->gradient_ready(index); });
        ddp_->finish_step();
        model_.apply_gradients(static_cast<float>(options_.learning_rate));
        loss_sum.wait();

        const double loss = loss_ / static_cast<double>(options_.global_batch);
        recent_losses_[static_cast<std::size_t>(step_) % kRecentLosses] = loss;
        ++step_;
        std::this_thread::sleep_for(std::chrono::milliseconds(options_.step_delay_ms));
        return loss;
    }

    // The mean loss over samples spread evenly over the whole text, each rank computing its part.
    double evaluate() {
        const std::size_t count = std::min(text_.sample_count(), kEvaluationSamplesMax);
        loss_ = 0.0;
        Batch batch;
        for (std::size_t i = context_.rank; i < count; i += context_.world_size) {
            batch.push_back(text_.window(i * text_.sample_count() / count));
            if (batch.size() == kEvaluationBatch || i + context_.world_size >= count) {
                loss_ += model_.forward(batch);
                batch.clear();
            }
        }
        sum_over_ranks(loss_).wait();
        return loss_ / static_cast<double>(count);
    }

    [[nodiscard]] regroup::Work sum_over_ranks(double& value) {
        return group_->all_reduce(TensorView(&value, 1, regroup::DType::float64), ReduceOp::sum);
    }

    // Settings that a checkpoint and this run must share, so that a step has the same samples.
    [[nodiscard]] std::vector<std::pair<const char*, std::int64_t>> identity() const {
        return {{"global batch", options_.global_batch},
                {"seed", options_.seed},
                {"text bytes", static_cast<std::int64_t>(text_.byte_count())}};
    }

    void load_checkpoint() {
        if (options_.checkpoint.empty()) {
            return;
        }
        const std::optional<Checkpoint> checkpoint =
            Checkpoint::load_if_present(options_.checkpoint);
        if (!checkpoint) {
            return;
        }
        for (const auto& [name, value] : identity()) {
            if (checkpoint->integer(name) != value) {
                throw regroup::Error(regroup::Errc::invalid_argument,
                                     "checkpoint " + options_.checkpoint + " is of another job: " +
                                         name + " " + std::to_string(checkpoint->integer(name)) +
                                         ", not " + std::to_string(value));
            }
        }
        step_ = checkpoint->integer("step");
        checkpoint->read_tensor("recent losses", std::span<double>(recent_losses_));
        for (Model::Tensor& tensor : model_.tensors()) {
            checkpoint->read_tensor(tensor.name, Model::view(tensor.value));
            checkpoint->read_tensor(tensor.name + std::string(".momentum"),
                                    Model::view(tensor.momentum));
        }
    }

    void save_checkpoint() {
        if (options_.checkpoint.empty()) {
            return;
        }
        Checkpoint checkpoint;
        for (const auto& [name, value] : identity()) {
            checkpoint.set_integer(name, value);
        }
        checkpoint.set_integer("step", step_);
        checkpoint.set_tensor("recent losses", std::span<const double>(recent_losses_));
        for (Model::Tensor& tensor : model_.tensors()) {
            checkpoint.set_tensor(tensor.name, Model::view(tensor.value));
            checkpoint.set_tensor(tensor.name + std::string(".momentum"),
                                  Model::view(tensor.momentum));
        }
        checkpoint.save(options_.checkpoint);
    }

    void save_parameters() {
        if (options_.save_parameters.empty()) {
            return;
        }
        Checkpoint parameters;
        for (Model::Tensor& tensor : model_.tensors()) {
            parameters.set_tensor(tensor.name, Model::view(tensor.value));
        }
        parameters.save(options_.save_parameters);
    }

    const Options& options_;
    const Context& context_;
    const Text text_;
    regroup::DistributedSampler sampler_;
    Model model_;
    Progress progress_;

    std::int64_t step_ = 0;                              // steps done
    std::array<double, kRecentLosses> recent_losses_{};  // by step, modulo the size
    double loss_ = 0.0;

    // Declared last, so that reductions end before the tensors above are destroyed.
    std::unique_ptr<ProcessGroup> group_;
    std::optional<regroup::DistributedDataParallel> ddp_;
};

}  // namespace
}  // namespace byte_lm

int main(int argc, char** argv) {
    Eigen::setNbThreads(1);  // One thread per rank.
    byte_lm::Options options;
    return example::run_main(
        byte_lm::flags_of(options), argc, argv, [&](const regroup::Context& context) {
            if (options.data.empty()) {
                throw example::UsageError("--data FILE.. is missing: there is nothing to learn");
            }
            byte_lm::Trainer(options, context).run();
        });
}
