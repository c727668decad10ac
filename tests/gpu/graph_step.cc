// SPDX-License-Identifier: Apache-2.0
// A training step of many small kernels with DistributedDataParallel and a FusedOptimizer: launched
// one by one, and as one CUDA graph. Prints the time of a step, the CPU time that it takes to start
// one, and that of other threads meanwhile; torch_graph_step.py does the same work with torch. Two
// ranks are the least: for one, NCCL has nothing to do in place.
#include <regroup/distributed_data_parallel.h>
#include <regroup/fused_optimizer.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tests/gpu/device_values.h"
#include "tests/gpu/ranks.h"
#include "tests/gpu/small_kernels.h"

namespace regroup::gpu {
namespace {

// 160 layers of 62,464 parameters make 10 million; gradients travel in 4 buckets. A layer's
// gradient is a multiple of 64 bytes, so that gradients lie in their buckets without gaps, as the
// weights do.
constexpr std::size_t kLayers = 160;
constexpr std::size_t kLayerCount = 62'464;
constexpr std::size_t kBuckets = 4;
constexpr std::size_t kBucketBytes = kLayers / kBuckets * kLayerCount * sizeof(float);
constexpr int kSteps = 200;

DataParallelOptions options_of(const OwnStream& stream, DType wire) {
    DataParallelOptions options{.bucket_bytes = kBucketBytes,
                                .first_bucket_bytes = kBucketBytes,
                                .rebuild_buckets = false,
                                .stream = {stream.get()}};
    if (wire != DType::float32) {
        options.hook = low_precision_hook(wire);
    }
    return options;
}

/// Weights have the order of their gradients, the last layer first, so that one update covers all.
class Training {
   public:
    Training(ProcessGroup& group, const OwnStream& stream, DType wire)
        : stream_(stream),
          weights_(std::vector<float>(kLayers * kLayerCount, 1.0F), group.device()),
          ddp_(group, parameters(), {}, options_of(stream, wire)),
          optimizer_({{.master = weights_.view(), .gradient = all_gradients()}},
                     AdamOptions{.weight_decay = 0.01, .decoupled_weight_decay = true}) {}

    /// 160 layer kernels, an all-reduce after each 40, the update.
    void step() {
        for (std::size_t layer = kLayers; layer-- > 0;) {
            launch_layer(static_cast<const float*>(weight(layer).data),
                         static_cast<float*>(ddp_.gradient(layer).data), kLayerCount,
                         stream_.get());
            ddp_.gradient_ready(layer);
        }
        ddp_.finish_step();
        optimizer_.step({stream_.get()});
    }
    void require_equal_replicas() {
        if (ddp_.find_replica_difference()) {
            throw Error(Errc::system, "the replicas differ");
        }
    }

   private:
    [[nodiscard]] TensorView weight(std::size_t layer) const {
        return weights_.view().part((kLayers - 1 - layer) * kLayerCount, kLayerCount);
    }
    [[nodiscard]] std::vector<Parameter> parameters() const {
        std::vector<Parameter> list;
        for (std::size_t layer = 0; layer < kLayers; ++layer) {
            list.push_back({weight(layer)});
        }
        return list;
    }
    [[nodiscard]] TensorView all_gradients() const {
        const Buffer& memory = ddp_.gradient_memory();
        return {memory.data, memory.bytes / sizeof(float), DType::float32, memory.device};
    }

    const OwnStream& stream_;
    DeviceValues<float> weights_;
    DistributedDataParallel ddp_;
    FusedOptimizer optimizer_;
};

double cpu_ms(clockid_t clock) {
    timespec spent{};
    (void)::clock_gettime(clock, &spent);
    return 1e3 * static_cast<double>(spent.tv_sec) + 1e-6 * static_cast<double>(spent.tv_nsec);
}

template <class Step>
void measure(const std::string& name, const Context& context, const OwnStream& stream,
             const Step& step) {
    for (int i = 0; i < 10; ++i) {
        step();
    }
    stream.synchronize();
    const double start = now_ms();
    const double process_start = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
    const double own_start = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kSteps; ++i) {
        step();
    }
    const double starting = cpu_ms(CLOCK_THREAD_CPUTIME_ID) - own_start;
    stream.synchronize();
    const double took = now_ms() - start;
    // NCCL launches and moves data in threads of its own, and the SDK has a watchdog.
    const double process = cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - process_start;
    const double others = process - (cpu_ms(CLOCK_THREAD_CPUTIME_ID) - own_start);
    if (context.rank == 0) {
        std::printf(
            "  %-24s %8.3f ms a step, %8.1f us of CPU to start it, %8.1f us in other threads\n",
            name.c_str(), took / kSteps, 1000 * starting / kSteps,
            1000 * std::max(others, 0.0) / kSteps);
    }
}

void measure_both(const Context& context, ProcessGroup& group, DType wire) {
    const OwnStream stream;
    Training training(group, stream, wire);
    const std::string suffix = ", " + std::string(to_string(wire)) + " wire";
    measure("eager" + suffix, context, stream, [&] { training.step(); });
    group.barrier().wait();
    {
        const Graph graph(stream, [&] { training.step(); });
        measure("graph" + suffix, context, stream, [&] { graph.launch(stream); });
    }
    group.barrier().wait();
    training.require_equal_replicas();
}

int be_rank() {
    try {
        const Context context = Context::from_environment();
        const auto group =
            ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
        cuda::set_device(group->device());
        measure_both(context, *group, DType::float32);
        measure_both(context, *group, DType::bfloat16);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "graph_step: %s\n", error.what());
        return 1;
    }
}

int run_all(std::uint32_t ranks, int gpus) {
    std::printf("%u rank(s) on %d GPU(s)%s, %zu parameters, %zu layers, %zu all-reduces, AdamW:\n",
                ranks, gpus,
                static_cast<int>(ranks) > gpus ? " (time-sliced, correctness only)" : "",
                kLayers * kLayerCount, kLayers, kBuckets);
    bool good = true;
    for (const RankEnd& end : run_ranks("step", ranks, gpus, std::chrono::seconds(120))) {
        std::printf("%s", end.output.c_str());
        good = good && end.finished && end.code == 0 && end.signal == 0;
    }
    return good ? 0 : 1;
}

}  // namespace
}  // namespace regroup::gpu

int main(int argc, char** argv) {
    using namespace regroup::gpu;
    if (!rank_mode(argc, argv).empty()) {
        return be_rank();
    }
    const int gpus = introduce("graph_step");
    const auto ranks = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
    if (ranks < 1) {
        std::fprintf(stderr, "usage: graph_step [RANKS]\n");
        return 2;
    }
    return run_all(ranks, gpus);
}
