// SPDX-License-Identifier: Apache-2.0
//
// mnist: a convolutional network that reads digits: a whole training program with the regroup
// worker SDK. It survives the loss of workers, sends gradients in 16 bits with a scaled loss,
// limits their norm, tests itself after every epoch, and saves checkpoints.
//
//     mnist                                                                  alone, drawn digits
//     regroup run --standalone --nproc-per-node=2 --max-restarts=3 mnist --data DIR       MNIST
//
// network.h describes the network; cpu_network.cc computes it with Eigen, cuda_network.cc with
// cuDNN. This file uses neither: it handles views of buffers on any device.

#include <regroup/regroup.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "idx.h"
#include "network.h"
#include "options.h"

namespace mnist {
namespace {

namespace fs = std::filesystem;
using regroup::Checkpoint;
using regroup::Context;
using regroup::DType;
using regroup::ElasticRound;
using regroup::ElasticStep;
using regroup::ProcessGroup;
using regroup::ReduceOp;
using regroup::TensorView;

constexpr std::size_t kDrawnForTesting = 1000;
constexpr std::uint64_t kTestBatch = 256;  // images at once, on each rank
constexpr std::size_t kBucketBytes = 32 << 10U;

void make_data(const fs::path& directory, std::int64_t images) {
    write_digits(directory, "train", draw_digits(static_cast<std::size_t>(images), 1));
    write_digits(directory, "t10k", draw_digits(kDrawnForTesting, 2));
}

/// A directory that is removed at the end.
class TemporaryDirectory {
   public:
    TemporaryDirectory() {
        std::string pattern = (fs::temp_directory_path() / "mnist-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw IdxError(pattern + " cannot be made; name a place with --make-data");
        }
        path_ = pattern;
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    [[nodiscard]] const fs::path& path() const { return path_; }

   private:
    fs::path path_;
};

struct Data {
    Digits train;
    Digits test;  ///< May be empty.
};

Data read_data(const Options& options) {
    std::optional<TemporaryDirectory> temporary;
    fs::path from = options.data;
    if (options.data.empty()) {
        // The same digits on every rank, from its own files: nodes need not share a disk.
        temporary.emplace();
        from = temporary->path();
        make_data(from, options.images);
    }
    Data data{.train = read_digits(from, "train"), .test = {}};
    if (has_digits(from, "t10k")) {
        data.test = read_digits(from, "t10k");
    }
    return data;
}

// A number in [0, 1) that depends only on the arguments, so that a sample is treated alike on any
// rank.
float unit_of(std::uint64_t seed, std::uint64_t step, std::uint64_t which) {
    std::seed_seq sequence{seed, step >> 32U, step, which >> 32U, which};
    std::array<std::uint32_t, 1> word{};
    sequence.generate(word.begin(), word.end());
    return static_cast<float>(word[0] >> 8U) * 0x1.0p-24F;
}

Batch batch_of(const Digits& digits, const std::vector<std::uint64_t>& indices) {
    Batch batch;
    batch.pixels.reserve(indices.size() * kPixels);
    for (const std::uint64_t index : indices) {
        const std::uint8_t* const image = digits.image(index);
        for (std::size_t i = 0; i < kPixels; ++i) {  // MNIST's mean and deviation
            const float unit = static_cast<float>(image[i]) / 255.0F;
            batch.pixels.push_back((unit - 0.1307F) / 0.3081F);
        }
        batch.labels.push_back(digits.labels[index]);
    }
    return batch;
}

// Holds what the training changes, and what a round needs.
class Trainer {
   public:
    Trainer(const Options& options, const Context& context)
        : options_(options),
          data_(read_data(options)),
          network_(options.device == "cpu" ? make_cpu_network() : make_cuda_network(context)),
          scaler_({.enabled = options.wire == "float16"}, network_->values().device),
          optimizer_(trained_tensors(), regroup::SgdOptions{.learning_rate = options.learning_rate,
                                                            .momentum = options.momentum}),
          loop_({.backend = options.device == "cpu" ? "cpu" : "nccl"}) {
        initialise();
        // Everything that a step changes. A new process gets it from a survivor.
        loop_.register_state("parameters", network_->values());
        register_all("optimizer", optimizer_.state());
        register_all("scaler", scaler_.state());
        if (context.is_main_process()) {
            std::printf("%zu images to learn from, %zu to be tested on\n", data_.train.count(),
                        data_.test.count());
        }
    }

    void run() {
        load_checkpoint();
        (void)loop_.run({
            .on_round = [this](const ElasticRound& round) { begin_round(round); },
            .on_step = [this](ElasticStep& step) { carry_out(step); },
            .on_leave = [this](const regroup::ElasticLeave& leave) { save_and_leave(leave.step); },
        });
    }

   private:
    // Replaces everything that belongs to the group of a round.
    void begin_round(const ElasticRound& round) {
        context_ = *round.context;
        std::printf("rank %u of %u, pid %d, from step %lu\n", context_.rank, context_.world_size,
                    ::getpid(), round.step);
        train_sampler_.emplace(sampler_options(data_.train, true));
        // Gradients are weighted with their share of the global batch, so their sum is the mean.
        // Three buckets, so that two travel while the backward pass goes on.
        regroup::DataParallelOptions options{.bucket_bytes = kBucketBytes,
                                             .reduction = ReduceOp::sum};
        if (options_.wire != "float32") {
            options.hook = regroup::low_precision_hook(
                options_.wire == "float16" ? DType::float16 : DType::bfloat16);
        }
        ddp_.emplace(*round.group, network_->parameters(), std::vector<TensorView>{}, options);
        optimizer_.set_gradients(*ddp_);
        if (options_.device != "cpu") {  // For figures that are in host memory.
            host_group_ = ProcessGroup::create("cpu", context_, {.name = "host"});
        }
    }

    void carry_out(ElasticStep& step) {
        const std::uint64_t epoch = step.samples_begin() / data_.train.count();
        const bool epoch_begins = step.samples_begin() % data_.train.count() == 0;
        if (epoch_begins && epoch > 0) {
            test(step, epoch);
        }
        if (epoch >= static_cast<std::uint64_t>(options_.epochs)) {
            std::printf("finished: parameters %016zx\n", hash());
            return step.finish();
        }
        compute_gradients(step);
        step.commit([this] { apply_gradients(); });  // When all ranks have come here.
        if (context_.rank == 0 && step.samples_begin() % data_.train.count() == 0) {
            save_checkpoint(step.number());
        }
    }

    void compute_gradients(ElasticStep& step) {
        const std::uint64_t count = data_.train.count();
        const std::uint64_t epoch = step.samples_begin() / count;
        const std::uint64_t first = step.samples_begin() % count;
        const std::uint64_t last = std::min(first + batch_count(), count);
        (void)step.take(last - first);
        train_sampler_->set_epoch(epoch);
        const std::vector<std::uint64_t> indices = train_sampler_->shard({first, last});
        Batch batch = batch_of(data_.train, indices);
        drop_out(batch, indices, epoch * count + first);
        ddp_->zero_gradients();
        network_->forward(batch);
        const auto scale = static_cast<float>(scaler_.scale());
        network_->backward(batch, scale / static_cast<float>(last - first), *ddp_);
        ddp_->finish_step();
    }

    // Local: the gradients are equal on all ranks, and so are the results.
    void apply_gradients() {
        scaler_.unscale_all(ddp_->gradients());
        regroup::clip_grad_norm(ddp_->gradients(), options_.clip_norm);
        optimizer_.step(scaler_);  // Does nothing if a gradient has left the range of float16.
        scaler_.update();
    }

    // Each rank scores its share, with a last batch of any size. The sums over the ranks equal
    // those of a single process.
    void test(ElasticStep& step, std::uint64_t epoch) {
        if (data_.test.count() == 0) {
            return;
        }
        const auto section = step.section("test");  // Longer than a step.
        regroup::Evaluator evaluator(host_group_ ? *host_group_ : step.group(), data_.test.count(),
                                     {"loss", "correct"});
        const regroup::DistributedSampler sampler(sampler_options(data_.test, false));
        const std::uint64_t stride = kTestBatch * context_.world_size;
        for (std::uint64_t first = 0; first < data_.test.count(); first += stride) {
            const std::uint64_t last = std::min<std::uint64_t>(first + stride, data_.test.count());
            network_->forward(batch_of(data_.test, sampler.shard({first, last})));
            for (const Score& score : network_->scores()) {
                evaluator.add({score.loss, score.correct});
            }
        }
        const regroup::EvaluationResult result = evaluator.finish();
        if (context_.rank == 0) {
            std::printf("epoch %lu: test loss %.6f, %.0f of %lu right (%.2f %%)\n", epoch,
                        result.mean("loss"), result.sum("correct"), result.sample_count(),
                        100.0 * result.mean("correct"));
        }
    }

    void load_checkpoint() {
        const auto checkpoint = options_.checkpoint.empty()
                                    ? std::nullopt
                                    : Checkpoint::load_if_present(options_.checkpoint);
        if (!checkpoint) {
            return;
        }
        std::vector<float> values(kParameterCount);
        checkpoint->read_tensor("parameters", std::span<float>(values));
        regroup::cuda::copy(network_->values(), std::span(values));
        optimizer_.load(*checkpoint);
        scaler_.load(*checkpoint);
        const auto step = static_cast<std::uint64_t>(checkpoint->integer("step"));
        loop_.resume_at(step, samples_of(step));
    }

    void save_checkpoint(std::uint64_t step) {
        if (options_.checkpoint.empty()) {
            return;
        }
        const std::vector<float> values = parameters_on_host();
        Checkpoint checkpoint;
        checkpoint.set_tensor("parameters", std::span(values));
        optimizer_.save(checkpoint);
        scaler_.save(checkpoint);
        checkpoint.set_integer("step", static_cast<std::int64_t>(step));
        checkpoint.save(options_.checkpoint, {.round = context_.round});
    }

    void save_and_leave(std::uint64_t step) {
        if (context_.local_rank != 0) {
            return;  // One rank of the node is enough.
        }
        try {
            save_checkpoint(step);
        } catch (const regroup::Error& error) {
            if (error.code() != regroup::Errc::fenced) {
                throw;
            }  // The other nodes have gone on and have saved a later step.
        }
    }

    // The last batch of an epoch may be smaller.
    [[nodiscard]] std::uint64_t samples_of(std::uint64_t step) const {
        const std::uint64_t count = data_.train.count();
        const std::uint64_t steps_per_epoch = (count + batch_count() - 1) / batch_count();
        return step / steps_per_epoch * count + step % steps_per_epoch * batch_count();
    }
    [[nodiscard]] std::uint64_t batch_count() const {
        return static_cast<std::uint64_t>(options_.global_batch);
    }

    void register_all(const std::string& name, const std::vector<TensorView>& tensors) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            loop_.register_state(name + "." + std::to_string(i), tensors[i]);
        }
    }

    [[nodiscard]] regroup::SamplerOptions sampler_options(const Digits& digits,
                                                          bool shuffle) const {
        return {.dataset_count = digits.count(),
                .rank = context_.rank,
                .world_size = context_.world_size,
                .shuffle = shuffle,
                .seed = static_cast<std::uint64_t>(options_.seed)};
    }

    void initialise() {
        std::mt19937_64 random(static_cast<std::uint64_t>(options_.seed));
        std::vector<float> values;
        for (const TensorSpec& tensor : kTensors) {
            const float bound = 1.0F / std::sqrt(static_cast<float>(tensor.fan_in));
            for (std::size_t i = 0; i < tensor.count; ++i) {
                const auto unit = static_cast<float>(random() >> 40U) * 0x1.0p-24F;
                values.push_back(bound * (2.0F * unit - 1.0F));
            }
        }
        regroup::cuda::copy(network_->values(), std::span(values));
    }

    void drop_out(Batch& batch, const std::vector<std::uint64_t>& indices,
                  std::uint64_t position) const {
        const auto share = static_cast<float>(options_.dropout);
        for (const std::uint64_t index : indices) {
            for (std::size_t unit = 0; unit < kHidden && share > 0.0F; ++unit) {
                const float drawn = unit_of(static_cast<std::uint64_t>(options_.seed), position,
                                            index * kHidden + unit);
                batch.dropout.push_back(drawn < share ? 0.0F : 1.0F / (1.0F - share));
            }
        }
    }

    // Of the parameters: equal on all ranks.
    [[nodiscard]] std::size_t hash() {
        const std::vector<float> values = parameters_on_host();
        return std::hash<std::string>()(std::string(reinterpret_cast<const char*>(values.data()),
                                                    values.size() * sizeof(float)));
    }
    [[nodiscard]] std::vector<float> parameters_on_host() {
        std::vector<float> values(kParameterCount);
        regroup::cuda::copy(std::span(values), network_->values());
        return values;
    }

    [[nodiscard]] std::vector<regroup::OptimizerTensors> trained_tensors() {
        std::vector<regroup::OptimizerTensors> list;
        for (std::size_t i = 0; i < kTensorCount; ++i) {
            list.push_back({.master = network_->value(i)});
        }
        return list;
    }

    const Options& options_;
    const Data data_;
    std::unique_ptr<Network> network_;
    regroup::GradScaler scaler_;
    regroup::FusedOptimizer optimizer_;
    regroup::ElasticLoop loop_;

    // Of the present round. Declared last, so that reductions end before the tensors above are
    // destroyed.
    Context context_;
    std::optional<regroup::DistributedSampler> train_sampler_;
    std::optional<regroup::DistributedDataParallel> ddp_;
    std::unique_ptr<ProcessGroup> host_group_;
};

void run(const Options& options, const Context& context) {
    options.check();
    try {
        if (!options.make_data.empty()) {
            make_data(options.make_data, options.images);
            return;
        }
        Trainer(options, context).run();
    } catch (const IdxError& error) {
        throw example::UsageError(error.what());
    }
}

}  // namespace
}  // namespace mnist

int main(int argc, char** argv) {
    mnist::Options options;
    return example::run_main(
        mnist::flags_of(options), argc, argv,
        [&options](const regroup::Context& context) { mnist::run(options, context); });
}
