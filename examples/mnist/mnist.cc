// SPDX-License-Identifier: Apache-2.0
//
// mnist: a convolutional network that reads digits, trained data-parallel with the regroup worker
// SDK.
//
//     mnist                                                                  alone, drawn digits
//     regroup run --standalone --nproc-per-node=2 mnist --data DIR           MNIST, on two ranks
//
// network.h describes the network; cpu_network.cc computes it with Eigen, cuda_network.cc with
// cuDNN. This file uses neither: it handles views of buffers on any device.

#include <regroup/checkpoint.h>
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/distributed_sampler.h>
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "idx.h"
#include "network.h"
#include "options.h"

namespace mnist {
namespace {

namespace fs = std::filesystem;
using regroup::Checkpoint;
using regroup::Context;
using regroup::ReduceOp;

constexpr std::size_t kDrawnForTraining = 6000;
constexpr std::size_t kDrawnForTesting = 1000;
constexpr std::uint64_t kTestBatch = 256;  // images at once, on each rank

void make_data(const fs::path& directory) {
    write_digits(directory, "train", draw_digits(kDrawnForTraining, 1));
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

Data read_data(const std::string& directory) {
    std::optional<TemporaryDirectory> temporary;
    fs::path from = directory;
    if (directory.empty()) {
        // The same digits on every rank, from its own files: nodes need not share a disk.
        temporary.emplace();
        from = temporary->path();
        make_data(from);
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

class Trainer {
   public:
    Trainer(const Options& options, const Context& context)
        : options_(options),
          context_(context),
          data_(read_data(options.data)),
          sampler_(sampler_options(data_.train)),
          network_(options.device == "cpu" ? make_cpu_network() : make_cuda_network(context)),
          optimizer_({{.master = network_->values(), .gradient = network_->gradients()}},
                     regroup::SgdOptions{.learning_rate = options.learning_rate,
                                         .momentum = options.momentum}),
          group_(regroup::ProcessGroup::create(options.device == "cpu" ? "cpu" : "nccl", context)) {
        initialise();
        if (context_.is_main_process()) {
            load_checkpoint();
        }
        // Every rank gets the state of rank 0: the weights, the momentum, and the epoch. Gradients
        // are weighted with their share of the global batch, so their sum is the mean.
        std::vector<regroup::TensorView> buffers = optimizer_.state();
        buffers.push_back(network_->totals());  // holds the epoch
        ddp_.emplace(*group_, network_->parameters(), std::move(buffers),
                     regroup::DataParallelOptions{.reduction = ReduceOp::sum});
        epoch_ = static_cast<std::int64_t>(totals().samples);
    }

    void run() {
        if (context_.is_main_process()) {
            std::printf(
                "%zu images to learn from, %zu to be tested on; %u ranks on %s; %s at epoch %ld\n",
                data_.train.count(), data_.test.count(), context_.world_size,
                options_.device.c_str(), epoch_ == 0 ? "starting" : "resuming", epoch_);
        }
        for (; epoch_ < options_.epochs; ++epoch_) {
            const Totals mine = train_epoch();
            std::printf("Rank %u, epoch %ld: %.6f\n", context_.rank, epoch_,
                        mine.loss / std::max(1.0, mine.samples));
            save_checkpoint();
        }
        test();
    }

   private:
    [[nodiscard]] regroup::SamplerOptions sampler_options(const Digits& digits) const {
        return {.dataset_count = digits.count(),
                .rank = context_.rank,
                .world_size = context_.world_size,
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
        network_->write(network_->values(), values.data());
    }

    [[nodiscard]] Batch batch_of(const Digits& digits,
                                 const std::vector<std::uint64_t>& indices) const {
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

    void drop_out(Batch& batch, const std::vector<std::uint64_t>& indices,
                  std::uint64_t step) const {
        const auto share = static_cast<float>(options_.dropout);
        for (const std::uint64_t index : indices) {
            for (std::size_t unit = 0; unit < kHidden && share > 0.0F; ++unit) {
                const float drawn = unit_of(static_cast<std::uint64_t>(options_.seed), step,
                                            index * kHidden + unit);
                batch.dropout.push_back(drawn < share ? 0.0F : 1.0F / (1.0F - share));
            }
        }
    }

    // Returns this rank's own totals over the epoch.
    Totals train_epoch() {
        clear_totals();
        const auto epoch = static_cast<std::uint64_t>(epoch_);
        const auto batch_count = static_cast<std::uint64_t>(options_.global_batch);
        sampler_.set_epoch(epoch);
        for (std::uint64_t first = 0; first < data_.train.count(); first += batch_count) {
            const std::uint64_t last =
                std::min<std::uint64_t>(first + batch_count, data_.train.count());
            const std::vector<std::uint64_t> indices = sampler_.shard({first, last});
            Batch batch = batch_of(data_.train, indices);
            drop_out(batch, indices, epoch * data_.train.count() + first);
            network_->forward(batch);
            network_->backward(batch, 1.0F / static_cast<float>(last - first),
                               [this](std::size_t index) { ddp_->gradient_ready(index); });
            ddp_->finish_step();
            optimizer_.step();
        }
        return totals();
    }

    // Each rank scores its share without padding, with a last batch of any size. The sums over the
    // ranks equal those of a single process.
    void test() {
        if (data_.test.count() == 0) {
            return;
        }
        clear_totals();
        regroup::SamplerOptions in_order = sampler_options(data_.test);
        in_order.shuffle = false;
        const regroup::DistributedSampler sampler(in_order);
        const std::uint64_t stride = kTestBatch * context_.world_size;
        for (std::uint64_t first = 0; first < data_.test.count(); first += stride) {
            const std::uint64_t last = std::min<std::uint64_t>(first + stride, data_.test.count());
            network_->forward(batch_of(data_.test, sampler.shard({first, last})));
        }
        group_->all_reduce(network_->totals(), ReduceOp::sum).wait();
        const Totals all = totals();
        if (context_.is_main_process()) {
            std::printf("Test set: mean loss %.6f, %.0f of %.0f right (%.2f %%)\n",
                        all.loss / all.samples, all.correct, all.samples,
                        100.0 * all.correct / all.samples);
        }
    }

    [[nodiscard]] Totals totals() {
        Totals sums;
        network_->read(&sums, network_->totals());
        return sums;
    }
    void clear_totals() {
        const Totals zero;
        network_->write(network_->totals(), &zero);
    }

    void load_checkpoint() {
        if (options_.checkpoint.empty()) {
            return;
        }
        if (const auto checkpoint = Checkpoint::load_if_present(options_.checkpoint)) {
            std::vector<float> values(kParameterCount);
            checkpoint->read_tensor("parameters", std::span<float>(values));
            network_->write(network_->values(), values.data());
            optimizer_.load(*checkpoint);
            const Totals sums{.samples = static_cast<double>(checkpoint->integer("epochs done"))};
            network_->write(network_->totals(), &sums);
        }
    }

    void save_checkpoint() {
        if (options_.checkpoint.empty()) {
            return;
        }
        // On a GPU finish_step does not wait. The barrier ensures that all reductions of the epoch
        // have succeeded, so that the weights may be saved.
        group_->barrier().wait();
        if (!context_.is_main_process()) {
            return;
        }
        std::vector<float> values(kParameterCount);
        network_->read(values.data(), network_->values());
        Checkpoint checkpoint;
        checkpoint.set_tensor("parameters", std::span<const float>(values));
        optimizer_.save(checkpoint);
        checkpoint.set_integer("epochs done", epoch_ + 1);
        checkpoint.save(options_.checkpoint);
    }

    const Options& options_;
    const Context& context_;
    const Data data_;
    regroup::DistributedSampler sampler_;
    std::unique_ptr<Network> network_;
    regroup::FusedOptimizer optimizer_;
    std::int64_t epoch_ = 0;

    // Declared last, so that reductions end before the tensors above are destroyed.
    std::unique_ptr<regroup::ProcessGroup> group_;
    std::optional<regroup::DistributedDataParallel> ddp_;
};

void run(const Options& options, const Context& context) {
    options.check();
    try {
        if (!options.make_data.empty()) {
            make_data(options.make_data);
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
