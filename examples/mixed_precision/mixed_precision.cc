// SPDX-License-Identifier: Apache-2.0
//
// mixed_precision: computing and communicating in 16 bits, with float32 where it is needed.
//
//     regroup run --standalone --nproc-per-node=2 mixed_precision --opt-level O2 --overflow-at 100
//
// model.h lists the formats of each level. DistributedDataParallel reduces the gradients in their
// format. GradScaler prevents underflow of float16 gradients, and makes all ranks skip a step if
// one of them overflowed. FusedOptimizer updates the masters and rounds them to the weights for the
// next step, in one pass.

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "flags.h"
#include "model.h"

namespace mixed_precision {
namespace {

using regroup::Context;
using regroup::ReduceOp;

struct Options {
    std::string opt_level = "O2";
    std::string dtype = "float16";
    std::string device = "cpu";
    std::int64_t steps = 400;
    std::int64_t global_batch = 64;
    std::int64_t inputs = 32;
    std::int64_t hidden = 128;
    std::int64_t classes = 10;
    double learning_rate = 0.003;
    double init_scale = 65536.0;
    std::int64_t growth_interval = 2000;
    std::int64_t overflow_at = 0;
    std::int64_t log_every = 50;
    std::int64_t seed = 1;

    [[nodiscard]] Level level() const {
        if (opt_level.size() != 2 || opt_level[0] != 'O' || opt_level[1] < '0' ||
            opt_level[1] > '3') {
            throw example::UsageError("--opt-level takes O0, O1, O2 or O3, not '" + opt_level +
                                      "'");
        }
        if (dtype != "float16" && dtype != "bfloat16") {
            throw example::UsageError("--dtype takes float16 or bfloat16, not '" + dtype + "'");
        }
        if (device != "cpu" && device != "cuda") {
            throw example::UsageError("--device takes cpu or cuda, not '" + device + "'");
        }
        return level_of(opt_level[1] - '0', dtype == "float16" ? DType::float16 : DType::bfloat16);
    }
};

example::Flags flags_of(Options& options) {
    example::Flags flags("mixed_precision",
                         "trains a perceptron in 32 or 16 bits, data-parallel over however many\n"
                         "ranks it is launched with.");
    flags.add("--opt-level", options.opt_level, "O0: all float32; O1: 16-bit products; O2: 16-bit");
    flags.add("--dtype", options.dtype, "of 16 bits: float16 or bfloat16 (float16)");
    flags.add("--device", options.device, "cpu or cuda (cpu)");
    flags.add("--steps", options.steps, {.min = 1}, "to train");
    flags.add("--global-batch", options.global_batch, {1, 1 << 20},
              "samples per step, over all ranks together");
    flags.add("--inputs", options.inputs, {1, 1 << 16}, "numbers in a sample");
    flags.add("--hidden", options.hidden, {1, 1 << 16}, "width of the hidden layer");
    flags.add("--classes", options.classes, {2, 1 << 12}, "kinds of samples");
    flags.add("--learning-rate", options.learning_rate, "of AdamW");
    flags.add("--init-scale", options.init_scale, "of the loss");
    flags.add("--growth-interval", options.growth_interval, {1, 1 << 30},
              "good steps after which the scale doubles");
    flags.add("--overflow-at", options.overflow_at, {},
              "step in which the last rank meets a broken sample; 0: never");
    flags.add("--log-every", options.log_every, {.min = 1}, "steps between progress lines");
    flags.add("--seed", options.seed, {}, "of weights and samples");
    return flags;
}

// Numbers in [-1, 1). No distribution of the standard library: those differ between platforms.
float symmetric(std::mt19937_64& random) {
    return static_cast<float>(random() >> 40U) * 0x1.0p-23F - 1.0F;
}

/// Unlimited samples, each of which depends only on its number. The class of a sample is the hidden
/// direction that it is closest to.
class Samples {
   public:
    Samples(const Sizes& sizes, std::uint64_t seed)
        : sizes_(sizes), seed_(seed), directions_(sizes.classes * sizes.inputs) {
        std::mt19937_64 random(seed);
        std::ranges::generate(directions_, [&random] { return symmetric(random); });
    }

    void add_to(Batch& batch, std::uint64_t number) const {
        std::mt19937_64 random((number + 1) * 0x9e3779b97f4a7c15ULL ^ seed_);
        const std::size_t first = batch.inputs.size();
        for (std::size_t i = 0; i < sizes_.inputs; ++i) {
            batch.inputs.push_back(symmetric(random));
        }
        std::int32_t best = 0;
        float most = -std::numeric_limits<float>::infinity();
        for (std::size_t c = 0; c < sizes_.classes; ++c) {
            float score = 0.0F;
            for (std::size_t i = 0; i < sizes_.inputs; ++i) {
                score += directions_[c * sizes_.inputs + i] * batch.inputs[first + i];
            }
            if (score > most) {
                most = score;
                best = static_cast<std::int32_t>(c);
            }
        }
        batch.labels.push_back(best);
    }

   private:
    Sizes sizes_;
    std::uint64_t seed_;
    std::vector<float> directions_;  // [classes, inputs]
};

class Trainer {
   public:
    Trainer(const Options& options, const Context& context)
        : options_(options),
          context_(context),
          sizes_{static_cast<std::size_t>(options.inputs), static_cast<std::size_t>(options.hidden),
                 static_cast<std::size_t>(options.classes)},
          samples_(sizes_, static_cast<std::uint64_t>(options.seed)),
          model_(options.device == "cpu" ? make_cpu_model(sizes_, options.level())
                                         : make_cuda_model(sizes_, options.level(), context)),
          scaler_({.init_scale = options.init_scale,
                   .growth_interval = static_cast<std::int32_t>(options.growth_interval),
                   .enabled = model_->level().scales_loss},
                  model_->masters().device),
          optimizer_({{.master = model_->masters(),
                       .gradient = model_->gradients(),
                       .shadow = model_->level().compute == DType::float32 ? TensorView()
                                                                           : model_->weights()}},
                     regroup::AdamOptions{.learning_rate = options.learning_rate,
                                          .weight_decay = 0.01,
                                          .decoupled_weight_decay = true}),
          group_(regroup::ProcessGroup::create(options.device == "cpu" ? "cpu" : "nccl", context)) {
        initialise();
        // Gradients are weighted with their share of the global batch, so their sum is the mean.
        std::vector<TensorView> buffers = optimizer_.state();
        for (const TensorView& view : scaler_.state()) {
            buffers.push_back(view);
        }
        buffers.push_back(model_->masters());
        ddp_.emplace(*group_, model_->parameters(), std::move(buffers),
                     regroup::DataParallelOptions{.reduction = ReduceOp::sum});
        optimizer_.write_shadows();
    }

    void run() {
        if (context_.is_main_process()) {
            const TensorView gradients = model_->gradients();
            std::printf("%s on %s, %u ranks: products in %s, gradients in %s: %zu bytes a step\n",
                        options_.opt_level.c_str(), options_.device.c_str(), context_.world_size,
                        std::string(to_string(model_->level().compute)).c_str(),
                        std::string(to_string(gradients.dtype)).c_str(), gradients.bytes());
        }
        for (step_ = 1; step_ <= options_.steps; ++step_) {
            train_step();
            if (step_ % options_.log_every == 0 || step_ == options_.steps) {
                report();
            }
        }
        std::printf("rank %u: %ld steps taken, %ld skipped, weights %016lx\n", context_.rank,
                    optimizer_.step_count(), scaler_.skipped_steps(), fingerprint());
    }

   private:
    void initialise() {
        std::mt19937_64 random(static_cast<std::uint64_t>(options_.seed));
        std::vector<float> values;
        for (std::size_t index = 0; index < kTensorCount; ++index) {
            const bool first_layer = index == hidden_weight || index == hidden_bias;
            const float fan_in = static_cast<float>(first_layer ? sizes_.inputs : sizes_.hidden);
            for (std::size_t i = 0; i < model_->count_of(index); ++i) {
                values.push_back(symmetric(random) / std::sqrt(fan_in));
            }
        }
        model_->write(model_->masters(), values.data());
    }

    [[nodiscard]] Batch next_batch() const {
        const auto count = static_cast<std::uint64_t>(options_.global_batch);
        Batch batch;
        for (std::uint64_t i = context_.rank; i < count; i += context_.world_size) {
            samples_.add_to(batch, static_cast<std::uint64_t>(step_) * count + i);
        }
        if (step_ == options_.overflow_at && context_.rank + 1 == context_.world_size &&
            !batch.inputs.empty()) {
            batch.inputs[0] = std::numeric_limits<float>::infinity();
        }
        return batch;
    }

    void train_step() {
        const Batch batch = next_batch();
        model_->forward(batch);
        model_->backward(batch, 1.0F / static_cast<float>(options_.global_batch),
                         scaler_.scale_tensor(),
                         [this](std::size_t index) { ddp_->gradient_ready(index); });
        ddp_->finish_step();
        scaler_.check(model_->gradients());
        scaler_.agree(*group_).wait();
        optimizer_.step(scaler_);
        if (!model_->level().keeps_master) {
            model_->forget_master();
        }
        tell_of_overflow();
        scaler_.update();
    }

    // For demonstration only. On a GPU it waits for the step, which a fast program must not do.
    void tell_of_overflow() const {
        if (scaler_.overflowed()) {
            std::printf("rank %u: step %ld overflowed with scale %.0f, and is skipped\n",
                        context_.rank, step_, scaler_.scale());
        }
    }

    void report() {
        group_->all_reduce(model_->totals(), ReduceOp::sum).wait();
        Totals sums;
        model_->read(&sums, model_->totals());
        const Totals zero;
        model_->write(model_->totals(), &zero);
        if (context_.is_main_process()) {
            std::printf("step %ld  loss %.6f  accuracy %.2f %%  scale %.0f  skipped %ld\n", step_,
                        sums.loss / sums.samples, 100.0 * sums.correct / sums.samples,
                        scaler_.scale(), scaler_.skipped_steps());
        }
    }

    // A hash of the parameters, equal on all ranks if the replicas are equal.
    [[nodiscard]] std::uint64_t fingerprint() {
        std::vector<std::uint8_t> bytes(model_->masters().bytes());
        model_->read(bytes.data(), model_->masters());
        return std::hash<std::string_view>()(
            {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }

    const Options& options_;
    const Context& context_;
    const Sizes sizes_;
    const Samples samples_;
    std::unique_ptr<Model> model_;
    regroup::GradScaler scaler_;
    regroup::FusedOptimizer optimizer_;
    std::int64_t step_ = 0;

    // Declared last, so that reductions end before the tensors above are destroyed.
    std::unique_ptr<regroup::ProcessGroup> group_;
    std::optional<regroup::DistributedDataParallel> ddp_;
};

}  // namespace
}  // namespace mixed_precision

int main(int argc, char** argv) {
    mixed_precision::Options options;
    return example::run_main(mixed_precision::flags_of(options), argc, argv,
                             [&options](const regroup::Context& context) {
                                 (void)options.level();
                                 mixed_precision::Trainer(options, context).run();
                             });
}
