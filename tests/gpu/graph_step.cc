// SPDX-License-Identifier: Apache-2.0
// A training step of many small kernels with its all-reduces: launched one by one, and as one CUDA
// graph. Prints the time of a step, and the CPU time that it takes to start one.
#include <regroup/cuda.h>
#include <regroup/process_group.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tests/gpu/device_values.h"
#include "tests/gpu/ranks.h"
#include "tests/gpu/small_kernels.h"

namespace regroup::gpu {
namespace {

// 160 layers of 62,500 parameters make 10 million; gradients travel in 4 buckets.
constexpr std::size_t kLayers = 160;
constexpr std::size_t kLayerCount = 62'500;
constexpr std::size_t kBuckets = 4;
constexpr std::size_t kLayersOfBucket = kLayers / kBuckets;
constexpr int kSteps = 200;

struct Model {
    explicit Model(Device device)
        : weights(kLayers * kLayerCount, device), gradients(kLayers * kLayerCount, device) {}

    DeviceValues<float> weights;
    DeviceValues<float> gradients;
};

/// 160 layer kernels, an all-reduce after each 40, an optimiser kernel for each layer.
void run_step(ProcessGroup& group, const Model& model, const OwnStream& stream) {
    auto* const weights = static_cast<float*>(model.weights.data());
    auto* const gradients = static_cast<float*>(model.gradients.data());
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
        launch_layer(weights + layer * kLayerCount, gradients + layer * kLayerCount, kLayerCount,
                     stream.get());
        if ((layer + 1) % kLayersOfBucket == 0) {
            const std::size_t first = (layer + 1 - kLayersOfBucket) * kLayerCount;
            (void)group.all_reduce(
                model.gradients.view().part(first, kLayersOfBucket * kLayerCount), ReduceOp::avg);
        }
    }
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
        launch_descent(weights + layer * kLayerCount, gradients + layer * kLayerCount, 0.001F,
                       kLayerCount, stream.get());
    }
}

double cpu_ms() {
    timespec spent{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return 1e3 * static_cast<double>(spent.tv_sec) + 1e-6 * static_cast<double>(spent.tv_nsec);
}

template <class Step>
void measure(const char* name, const Context& context, const OwnStream& stream, const Step& step) {
    for (int i = 0; i < 10; ++i) {
        step();
    }
    stream.synchronize();
    const double start = now_ms();
    const double cpu_start = cpu_ms();
    for (int i = 0; i < kSteps; ++i) {
        step();
    }
    const double cpu = cpu_ms() - cpu_start;
    stream.synchronize();
    const double took = now_ms() - start;
    if (context.rank == 0) {
        std::printf("  %-8s %8.3f ms a step, %8.1f us of CPU to start it\n", name, took / kSteps,
                    1000 * cpu / kSteps);
    }
}

int be_rank() {
    try {
        const Context context = Context::from_environment();
        const auto group =
            ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
        cuda::set_device(group->device());
        const OwnStream stream;
        group->use_stream({stream.get()});
        const Model model(group->device());
        measure("eager", context, stream, [&] { run_step(*group, model, stream); });
        group->barrier().wait();
        const Graph graph(stream, [&] { run_step(*group, model, stream); });
        measure("graph", context, stream, [&] { graph.launch(stream); });
        group->barrier().wait();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "graph_step: %s\n", error.what());
        return 1;
    }
}

int run_all(std::uint32_t ranks, int gpus) {
    std::printf("%u rank(s) on %d GPU(s)%s, %zu parameters, %zu kernels, %zu all-reduces:\n", ranks,
                gpus, static_cast<int>(ranks) > gpus ? " (time-sliced, correctness only)" : "",
                kLayers * kLayerCount, 2 * kLayers, kBuckets);
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
    const auto ranks = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1);
    if (ranks < 1) {
        std::fprintf(stderr, "usage: graph_step [RANKS]\n");
        return 2;
    }
    return gpus == 0 ? 0 : run_all(ranks, gpus);
}
