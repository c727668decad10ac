// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel on GPUs, between two ranks: several buckets, wires, the caller's stream
// and a CUDA graph. With one GPU the ranks share it.
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "tests/gpu/device_values.h"
#include "tests/gpu/ranks.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kCount = 100'003;  // Not a multiple of any block size.
constexpr std::size_t kParameterCount = 5;
constexpr std::uint32_t kRanks = 2;

void require(bool holds, const std::string& what) {
    if (!holds) {
        throw Error(Errc::system, "not so: " + what);
    }
}

/// Pinned memory with equal values, so that copies from it are asynchronous.
class PinnedValues {
   public:
    explicit PinnedValues(float value) {
        check(cudaMallocHost(&data_, kCount * sizeof(float)), "cudaMallocHost");
        std::fill_n(static_cast<float*>(data_), kCount, value);
    }
    ~PinnedValues() { (void)cudaFreeHost(data_); }
    PinnedValues(const PinnedValues&) = delete;
    PinnedValues& operator=(const PinnedValues&) = delete;
    [[nodiscard]] const void* data() const { return data_; }

   private:
    void* data_ = nullptr;
};

/// A model on the GPU, and a backward pass that writes whole numbers.
class Model {
   public:
    Model(ProcessGroup& group, DataParallelOptions options, bool in_callers_memory = false)
        : group_(group) {
        options.stream = {stream_.get()};
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < kParameterCount; ++i) {
            values_.push_back(zeros());
            parameters.push_back({values_.back()->view()});
            if (in_callers_memory) {
                gradients_.push_back(zeros());
                parameters.back().gradient = gradients_.back()->view();
            }
            sources_.push_back(
                std::make_unique<PinnedValues>(static_cast<float>((i + 1) * (1 + group.rank()))));
        }
        ddp_ = std::make_unique<DistributedDataParallel>(group, std::move(parameters),
                                                         std::vector<TensorView>(), options);
    }

    /// Reports all gradients but the first `unused` ones, from the first to the last.
    void backward(std::size_t unused = 0) {
        for (std::size_t i = unused; i < kParameterCount; ++i) {
            const TensorView gradient = ddp_->gradient(i);
            check(cudaMemcpyAsync(gradient.data, sources_[i]->data(), gradient.bytes(),
                                  cudaMemcpyHostToDevice, stream_.get()),
                  "cudaMemcpyAsync");
            ddp_->gradient_ready(i);
        }
    }
    void require_mean(const std::string& what) const {
        stream_.synchronize();
        const float mean_factor = (1.0F + static_cast<float>(group_.world_size())) / 2.0F;
        for (std::size_t i = 0; i < kParameterCount; ++i) {
            const float expected = ddp_->was_used(i) ? static_cast<float>(i + 1) * mean_factor : 0;
            std::vector<float> found(kCount);
            check(cudaMemcpy(found.data(), ddp_->gradient(i).data, kCount * sizeof(float),
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
            require(found == std::vector<float>(kCount, expected),
                    what + ", gradient " + std::to_string(i) + ": " + std::to_string(found[0]) +
                        " instead of " + std::to_string(expected));
        }
    }
    void clear_gradients() {
        const Buffer& memory = ddp_->gradient_memory();
        check(cudaMemsetAsync(memory.data, 0, memory.bytes, stream_.get()), "cudaMemsetAsync");
    }
    [[nodiscard]] DistributedDataParallel& ddp() { return *ddp_; }
    [[nodiscard]] const OwnStream& stream() const { return stream_; }

   private:
    using Values = std::unique_ptr<DeviceValues<float>>;

    [[nodiscard]] Values zeros() const {
        return std::make_unique<DeviceValues<float>>(kCount, group_.device());
    }

    ProcessGroup& group_;
    OwnStream stream_;
    std::vector<Values> values_;
    std::vector<Values> gradients_;
    std::vector<std::unique_ptr<PinnedValues>> sources_;
    std::unique_ptr<DistributedDataParallel> ddp_;
};

DataParallelOptions small_buckets() {
    return {.bucket_bytes = 2 * kCount * sizeof(float)};
}

void check_steps(ProcessGroup& group, const DataParallelOptions& options, bool in_callers_memory) {
    const std::optional<Stream> stream_before = group.current_stream();
    {
        Model model(group, options, in_callers_memory);
        require(model.ddp().buckets().size() > 1, "several buckets");
        for (int step = 0; step < 3; ++step) {
            model.backward();
            model.ddp().finish_step();
            model.require_mean("step " + std::to_string(step));
        }
        require(model.ddp().buckets().front().parameters.front() == 0,
                "buckets as they were reported");
        require(!model.ddp().find_replica_difference(), "replicas are equal");
    }
    require(group.current_stream() == stream_before, "the group's stream is the one before");
}

void check_unused(ProcessGroup& group) {
    DataParallelOptions options = small_buckets();
    options.unused_parameters = true;
    Model model(group, options);
    for (int step = 0; step < 2; ++step) {
        model.backward(2);
        model.ddp().finish_step();
        require(!model.ddp().was_used(1) && model.ddp().was_used(2), "what was used");
        model.require_mean("step " + std::to_string(step));
    }
}

void check_graph(ProcessGroup& group, const DataParallelOptions& options) {
    Model model(group, options);
    model.backward();
    model.ddp().finish_step();  // After it, bucket addresses stay the same.
    const Graph graph(model.stream(), [&] {
        model.backward();
        model.ddp().finish_step();
    });
    for (int replay = 0; replay < 3; ++replay) {
        model.clear_gradients();
        graph.launch(model.stream());
        model.require_mean("replay " + std::to_string(replay));
    }
}

bool report(const Context& context, const std::string& name, const std::function<void()>& body) {
    bool good = true;
    std::string problem;
    try {
        body();
    } catch (const std::exception& error) {
        good = false;
        problem = std::string(": ") + error.what();
    }
    std::printf("  rank %u %s %s%s\n", context.rank, good ? "pass" : "FAIL", name.c_str(),
                problem.c_str());
    std::fflush(stdout);
    return good;
}

int be_rank() {
    const Context context = Context::from_environment();
    const auto group = ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
    cuda::set_device(group->device());
    bool good =
        report(context, "gradient views", [&] { check_steps(*group, small_buckets(), false); });
    good &=
        report(context, "the caller's memory", [&] { check_steps(*group, small_buckets(), true); });
    good &= report(context, "unused parameters", [&] { check_unused(*group); });
    good &= report(context, "CUDA graph of a step", [&] { check_graph(*group, small_buckets()); });
    // Means of small whole numbers are exact in these formats.
    for (const DType wire : {DType::float16, DType::bfloat16}) {
        DataParallelOptions options = small_buckets();
        options.hook = low_precision_hook(wire);
        const std::string name(to_string(wire));
        good &=
            report(context, name + " on the wire", [&] { check_steps(*group, options, false); });
        good &= report(context, name + " on the wire, CUDA graph of a step",
                       [&] { check_graph(*group, options); });
    }
    return good ? 0 : 1;
}

int run_all(int gpus) {
    bool good = true;
    for (const RankEnd& end : run_ranks("check", kRanks, gpus, std::chrono::seconds(120))) {
        std::printf("%s", end.output.c_str());
        const bool ended_well = end.finished && end.signal == 0 && end.code == 0;
        if (!ended_well) {
            std::printf("  FAIL a rank %s\n",
                        !end.finished ? "did not end within 120 s"
                        : end.signal != 0
                            ? ("was killed by signal " + std::to_string(end.signal)).c_str()
                            : ("ended with " + std::to_string(end.code)).c_str());
        }
        good = good && ended_well;
    }
    std::printf("data_parallel_check: %s\n", good ? "all passed" : "FAILED");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace regroup::gpu

int main(int argc, char** argv) {
    using namespace regroup::gpu;
    try {
        if (!rank_mode(argc, argv).empty()) {
            return be_rank();
        }
        const int gpus = introduce("data_parallel_check");
        return run_all(gpus);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "data_parallel_check: %s\n", error.what());
        return 1;
    }
}
