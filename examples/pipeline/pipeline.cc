// SPDX-License-Identifier: Apache-2.0
//
// pipeline: a model that is split across two ranks.
//
//     regroup run --standalone --nproc-per-node=2 pipeline
//
//     rank 0: x -> tanh(x W1 + b1) --activations--> rank 1: h -> h W2 + b2 -> loss
//             gradients of W1, b1 <--gradients of h--        gradients of W2, b2
//
// A batch is split into micro-batches, so that rank 0 computes the next one while rank 1 computes
// the last (1F1B schedule). At most two activations are kept. As a world of one, the program trains
// the model unsplit. With two ranks it does both and compares. `--backend nccl` sends activations
// and gradients from GPU to GPU.

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "flags.h"
#include "linear_regression.h"

namespace {

using regroup::ProcessGroup;
using regroup::Work;
using Floats = example::DeviceVector<float>;
using Samples = std::span<const std::uint64_t>;

struct Options {
    std::int64_t steps = 200;
    std::int64_t batch_size = 32;
    std::int64_t micro_batches = 4;
    std::int64_t hidden = 16;
    double learning_rate = 0.05;
    std::string backend = "cpu";
};

constexpr std::uint32_t kFirstRank = 0;
constexpr std::uint32_t kSecondRank = 1;

// Weights, biases and their gradients: y = x W + b, with W = [in, out].
class Linear {
   public:
    Linear(std::size_t in, std::size_t out, std::uint64_t seed)
        : in_(in), out_(out), values_((in + 1) * out), gradients_(values_.size()) {
        std::mt19937_64 random(seed);
        for (float& value : std::span(values_).first(in * out)) {
            value = (static_cast<float>(random() >> 40U) * 0x1.0p-23F - 1.0F) /
                    std::sqrt(static_cast<float>(in));
        }
    }

    [[nodiscard]] std::vector<float> forward(std::span<const float> x) const {
        std::vector<float> y(values_.end() - static_cast<std::ptrdiff_t>(out_), values_.end());
        for (std::size_t i = 0; i < in_; ++i) {
            for (std::size_t j = 0; j < out_; ++j) {
                y[j] += x[i] * values_[i * out_ + j];
            }
        }
        return y;
    }

    // Adds to the gradients, and returns the gradient of x.
    std::vector<float> backward(std::span<const float> x, std::span<const float> y_gradient) {
        std::vector<float> x_gradient(in_);
        for (std::size_t i = 0; i < in_; ++i) {
            for (std::size_t j = 0; j < out_; ++j) {
                gradients_[i * out_ + j] += x[i] * y_gradient[j];
                x_gradient[i] += values_[i * out_ + j] * y_gradient[j];
            }
        }
        for (std::size_t j = 0; j < out_; ++j) {
            gradients_[in_ * out_ + j] += y_gradient[j];
        }
        return x_gradient;
    }

    void step(double learning_rate) {
        for (std::size_t i = 0; i < values_.size(); ++i) {
            values_[i] -= static_cast<float>(learning_rate) * gradients_[i];
            gradients_[i] = 0.0F;
        }
    }

    [[nodiscard]] std::span<float> values() { return values_; }

   private:
    std::size_t in_;
    std::size_t out_;
    std::vector<float> values_;  // W, then b
    std::vector<float> gradients_;
};

// ---------------------------------------------------------------------------------------------------
// The two halves. Each works on one micro-batch; buffers are [samples, hidden].

class FirstStage {
   public:
    FirstStage(const example::Dataset& dataset, std::size_t hidden)
        : dataset_(dataset), layer_(dataset.feature_count(), hidden, 1) {}

    [[nodiscard]] std::vector<float> forward(Samples samples) const {
        std::vector<float> activations;
        for (const std::uint64_t sample : samples) {
            for (const float value : layer_.forward(dataset_.input(sample))) {
                activations.push_back(std::tanh(value));
            }
        }
        return activations;
    }

    void backward(Samples samples, std::span<const float> activations, std::span<float> gradients) {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            gradients[i] *= 1.0F - activations[i] * activations[i];
        }
        const std::size_t hidden = gradients.size() / samples.size();
        for (std::size_t i = 0; i < samples.size(); ++i) {
            layer_.backward(dataset_.input(samples[i]), gradients.subspan(i * hidden, hidden));
        }
    }

    Linear& layer() { return layer_; }

   private:
    const example::Dataset& dataset_;
    Linear layer_;
};

class SecondStage {
   public:
    SecondStage(const example::Dataset& dataset, std::size_t hidden)
        : dataset_(dataset), hidden_(hidden), layer_(hidden, 1, 2) {}

    // Returns the gradients of the activations, and adds to the loss of this step.
    std::vector<float> forward_backward(Samples samples, std::span<const float> activations,
                                        float weight) {
        std::vector<float> gradients;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const auto x = activations.subspan(i * hidden_, hidden_);
            const float error = layer_.forward(x)[0] - dataset_.target(samples[i]);
            loss_ += double{error} * error * double{weight};
            const float gradient = 2.0F * weight * error;
            const std::vector<float> x_gradient = layer_.backward(x, std::span(&gradient, 1));
            gradients.insert(gradients.end(), x_gradient.begin(), x_gradient.end());
        }
        return gradients;
    }

    // Returns the mean loss of the step, and resets it.
    double take_loss() { return std::exchange(loss_, 0.0); }
    Linear& layer() { return layer_; }

   private:
    const example::Dataset& dataset_;
    std::size_t hidden_;
    Linear layer_;
    double loss_ = 0.0;
};

// ---------------------------------------------------------------------------------------------------

class Training {
   public:
    explicit Training(const Options& options)
        : options_(options),
          micro_batch_(static_cast<std::size_t>(options.batch_size / options.micro_batches)),
          hidden_(static_cast<std::size_t>(options.hidden)),
          first_(dataset_, hidden_),
          second_(dataset_, hidden_) {}

    void run_unsplit() {
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            for (std::int64_t micro = 0; micro < options_.micro_batches; ++micro) {
                const std::vector<std::uint64_t> samples = samples_of(step, micro);
                const std::vector<float> activations = first_.forward(samples);
                std::vector<float> gradients =
                    second_.forward_backward(samples, activations, weight());
                first_.backward(samples, activations, gradients);
            }
            first_.layer().step(options_.learning_rate);
            second_.layer().step(options_.learning_rate);
            report(step, second_.take_loss());
        }
    }

    void run_first(ProcessGroup& group) {
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            Floats activations(first_.forward(samples_of(step, 0)), group.device());
            group.send(activations.view(), kSecondRank).wait();
            for (std::int64_t micro = 0; micro < options_.micro_batches; ++micro) {
                // The next micro-batch is sent while the gradients of this one arrive.
                Floats next =
                    micro + 1 < options_.micro_batches
                        ? Floats(first_.forward(samples_of(step, micro + 1)), group.device())
                        : Floats(0, group.device());
                Floats gradients(activations.size(), group.device());
                exchange(group, kSecondRank, next, gradients);
                first_.backward(samples_of(step, micro), activations.host(), gradients.host());
                activations = std::move(next);
            }
            first_.layer().step(options_.learning_rate);
        }
        // The other half of the trained model, for the comparison.
        Floats second(second_.layer().values().size(), group.device());
        group.recv(second.view(), kSecondRank).wait();
        second.download();
        std::ranges::copy(second.host(), second_.layer().values().begin());
    }

    void run_second(ProcessGroup& group) {
        Floats activations(micro_batch_ * hidden_, group.device());
        for (std::int64_t step = 0; step < options_.steps; ++step) {
            group.recv(activations.view(), kFirstRank).wait();
            activations.download();
            for (std::int64_t micro = 0; micro < options_.micro_batches; ++micro) {
                Floats gradients(
                    second_.forward_backward(samples_of(step, micro), activations.host(), weight()),
                    group.device());
                const bool is_last = micro + 1 == options_.micro_batches;
                Floats next(is_last ? 0 : activations.size(), group.device());
                exchange(group, kFirstRank, gradients, next);
                if (!is_last) {
                    activations = std::move(next);
                }
            }
            second_.layer().step(options_.learning_rate);
            report(step, second_.take_loss());
        }
        const std::span<const float> values = second_.layer().values();
        Floats second(std::vector<float>(values.begin(), values.end()), group.device());
        group.send(second.view(), kFirstRank).wait();
    }

    // The largest difference between the parameters of two trainings.
    double difference_from(Training& other) {
        double largest = 0.0;
        const auto compare = [&largest](std::span<const float> a, std::span<const float> b) {
            for (std::size_t i = 0; i < a.size(); ++i) {
                largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
            }
        };
        compare(first_.layer().values(), other.first_.layer().values());
        compare(second_.layer().values(), other.second_.layer().values());
        return largest;
    }

    void be_quiet() { is_quiet_ = true; }

   private:
    // Sends and receives at the same time; skips empty buffers.
    static void exchange(ProcessGroup& group, std::uint32_t peer, Floats& out, Floats& in) {
        regroup::OperationBatch batch(group);
        const Work sent = out.size() == 0 ? Work() : group.send(out.view(), peer);
        const Work received = in.size() == 0 ? Work() : group.recv(in.view(), peer);
        batch.start();
        received.wait();
        sent.wait();
        in.download();
    }

    [[nodiscard]] std::vector<std::uint64_t> samples_of(std::int64_t step,
                                                        std::int64_t micro) const {
        const auto first =
            static_cast<std::uint64_t>(step * options_.micro_batches + micro) * micro_batch_;
        std::vector<std::uint64_t> samples;
        for (std::size_t i = 0; i < micro_batch_; ++i) {
            samples.push_back((first + i) % dataset_.count());
        }
        return samples;
    }

    // The weight of a sample in the mean loss of its batch.
    [[nodiscard]] float weight() const {
        return 1.0F /
               static_cast<float>(micro_batch_ * static_cast<std::size_t>(options_.micro_batches));
    }

    void report(std::int64_t step, double loss) const {
        const std::int64_t every = std::max<std::int64_t>(1, options_.steps / 5);
        if (!is_quiet_ && ((step + 1) % every == 0 || step == 0)) {
            std::printf("step %ld: loss %.9f\n", step + 1, loss);
        }
    }

    const Options options_;
    const std::size_t micro_batch_;
    const std::size_t hidden_;
    const example::Dataset dataset_{2048, 8};
    FirstStage first_;
    SecondStage second_;
    bool is_quiet_ = false;
};

void run(const Options& options, const regroup::Context& context) {
    if (options.batch_size % options.micro_batches != 0) {
        throw example::UsageError("--batch-size does not divide into --micro-batches");
    }
    if (context.world_size > 2) {
        throw example::UsageError("the model has two halves, and so runs on two ranks or one");
    }
    Training training(options);
    if (context.world_size == 1) {
        training.run_unsplit();
        return;
    }
    const auto group = ProcessGroup::create(options.backend, context);
    if (context.rank == kFirstRank) {
        training.run_first(*group);
        Training unsplit(options);
        unsplit.be_quiet();
        unsplit.run_unsplit();
        std::printf("largest difference from the unsplit model: %g\n",
                    training.difference_from(unsplit));
    } else {
        training.run_second(*group);
    }
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    example::Flags flags("pipeline", "trains a model of two layers, one on each of two ranks.");
    flags.add("--steps", options.steps, {1, 1'000'000'000}, "steps to train");
    flags.add("--batch-size", options.batch_size, {1, 1 << 16}, "samples per step");
    flags.add("--micro-batches", options.micro_batches, {1, 1024}, "parts of a batch");
    flags.add("--hidden", options.hidden, {1, 1 << 16}, "width between the layers");
    flags.add("--learning-rate", options.learning_rate, "of SGD");
    flags.add_backend(options.backend);
    return example::run_main(flags, argc, argv,
                             [&](const regroup::Context& context) { run(options, context); });
}
