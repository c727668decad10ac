// SPDX-License-Identifier: Apache-2.0
//
// The memory throughput of the optimizers' kernels, and the cost of a snapshot of their state,
// compared with CUDA's copies in the same run.
//
//     optimizer_bench [millions of parameters]
//
// Counts the bytes that must move, each read once and written once, regardless of caches.
#include <regroup/clip_grad_norm.h>
#include <regroup/cuda.h>
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include "tests/gpu/optimizer_memory.h"
#include "tests/gpu/ranks.h"
#include "worker_sdk/src/cuda/kernels.h"

namespace regroup::testing {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int kRuns = 21;
constexpr int kTensors = 300;
constexpr std::size_t kAllocationAlignment = 64;  // elements; that of tensors with own memory

class Timer {
   public:
    Timer() {
        require_cuda(::cudaEventCreate(&begin_), "cudaEventCreate");
        require_cuda(::cudaEventCreate(&end_), "cudaEventCreate");
    }
    ~Timer() {
        ::cudaEventDestroy(begin_);
        ::cudaEventDestroy(end_);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    /// Milliseconds in the default stream: the median of some runs, after two warm-up runs.
    double median(const std::function<void()>& work) {
        std::vector<double> times;
        for (int run = -2; run < kRuns; ++run) {
            const double time = once(work);
            if (run >= 0) {
                times.push_back(time);
            }
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }
    double once(const std::function<void()>& work) {
        float milliseconds = 0.0F;
        require_cuda(::cudaEventRecord(begin_), "cudaEventRecord");
        work();
        require_cuda(::cudaEventRecord(end_), "cudaEventRecord");
        require_cuda(::cudaEventSynchronize(end_), "cudaEventSynchronize");
        require_cuda(::cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds);
    }

   private:
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
          cudaStream_t stream = nullptr) {
    require_cuda(::cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

class Bench {
   public:
    explicit Bench(std::size_t count)
        : count_(count),
          master_(values(count)),
          gradient_(values(count)),
          low_gradient_(count),
          shadow_(count) {
        require_cuda(static_cast<cudaError_t>(
                         cuda::launch_cast(gradient_.data(), DType::float32, low_gradient_.data(),
                                           DType::bfloat16, count, 1.0F, nullptr)),
                     "launch_cast");
    }

    void run() {
        std::printf("%zu parameters, median of %d runs\n", count_, kRuns);
        std::printf("%-44s %8s %9s %9s %7s\n", "", "B/param", "ms", "GB/s", "÷ copy");
        copy_rate_ = row("device copy (cudaMemcpyAsync)", 8, [this] {
            copy(master_.data(), gradient_.data(), count_ * sizeof(float),
                 cudaMemcpyDeviceToDevice);
        });
        master_.write(values(count_));
        updates();
        passes();
        many_tensors(kAllocationAlignment);
        many_tensors(1);
        snapshot();
    }

   private:
    static std::vector<float> values(std::size_t count) {
        std::vector<float> all(count);
        std::uint32_t state = 1;
        for (float& value : all) {  // not zeros, which are faster than data
            state = state * 1664525U + 1013904223U;
            value = static_cast<float>(state >> 8U) * 0x1.0p-24F - 0.5F;
        }
        return all;
    }

    double row(const char* name, double bytes_each, const std::function<void()>& work) {
        const double ms = timer_.median(work);
        const double rate = bytes_each * static_cast<double>(count_) / ms / 1e6;
        const double ratio = copy_rate_ > 0.0 ? rate / copy_rate_ : 1.0;
        std::printf("%-44s %8.0f %9.3f %9.1f %7.3f\n", name, bytes_each, ms, rate, ratio);
        return rate;
    }

    void updates() {
        const AdamOptions adamw{.weight_decay = 0.01, .decoupled_weight_decay = true};
        const TensorView full = gradient_.view();
        const TensorView low = low_gradient_.view();
        const TensorView shadow = shadow_.view();
        const TensorView none;
        update("SGD with momentum", 20, {master_.view(), full, none}, SgdOptions{.momentum = 0.9});
        update("AdamW", 28, {master_.view(), full, none}, adamw);
        update("AdamW, bfloat16 shadow", 30, {master_.view(), full, shadow}, adamw);
        update("AdamW, bfloat16 gradients and shadow", 28, {master_.view(), low, shadow}, adamw);
    }
    template <class Options>
    void update(const char* name, double bytes_each, const OptimizerTensors& tensors,
                const Options& options) {
        const GradScaler scaler({.init_scale = 1024.0}, kGpu);
        FusedOptimizer optimizer({tensors}, options);
        row(name, bytes_each, [&] { optimizer.step(scaler); });
    }

    void passes() {
        GradScaler scaler({}, kGpu);
        row("overflow check, float32", 4, [&] { scaler.check(gradient_.view()); });
        row("overflow check, bfloat16", 2, [&] { scaler.check(low_gradient_.view()); });
        row("cast float32 to bfloat16", 6, [&] {
            require_cuda(static_cast<cudaError_t>(cuda::launch_cast(
                             gradient_.data(), DType::float32, low_gradient_.data(),
                             DType::bfloat16, count_, 1.0F, nullptr)),
                         "launch_cast");
        });
    }

    /// The same parameters as a model with many layers has them: kTensors tensors, a third of them
    /// with 0.1 % of the elements of the others, as biases have. Each begins at a multiple of
    /// `alignment` elements.
    void many_tensors(std::size_t alignment) {
        std::vector<OptimizerTensors> tensors;
        std::vector<TensorView> gradients;
        const double larger = kTensors * 2.0 / 3.0;
        const double room = static_cast<double>(count_ - alignment * kTensors);
        const auto large = static_cast<std::size_t>(room / (larger + 0.001 * (kTensors - larger)));
        std::size_t first = 0;
        for (int i = 0; i < kTensors; ++i) {
            const std::size_t count = i % 3 == 2 ? large / 1000 : large;
            const auto part = [&](const TensorView& whole) {
                return TensorView(static_cast<float*>(whole.data) + first, count, DType::float32,
                                  kGpu);
            };
            tensors.push_back({.master = part(master_.view()), .gradient = part(gradient_.view())});
            gradients.push_back(part(gradient_.view()));
            first += (count + alignment - 1) / alignment * alignment;
        }
        const std::vector<ConstTensorView> read_only(gradients.begin(), gradients.end());
        FusedOptimizer optimizer(tensors,
                                 AdamOptions{.weight_decay = 0.01, .decoupled_weight_decay = true});
        GradScaler scaler({}, kGpu);
        std::printf("in %d tensors, aligned to %zu bytes\n", kTensors, alignment * sizeof(float));
        row("AdamW", 28, [&] { optimizer.step(); });
        row("overflow check, float32", 4, [&] { scaler.check_all(read_only); });
        row("norm of the gradients, and its check", 4,
            [&] { static_cast<void>(clip_grad_norm(gradients, 1e30)); });
    }

    // Training pauses only for the copy of the masters to a second GPU buffer. The copy to pinned
    // memory overlaps with training.
    void snapshot() {
        const std::size_t bytes = count_ * sizeof(float);
        const auto rate = [bytes](double ms) { return static_cast<double>(bytes) / ms / 1e6; };
        void* pinned = nullptr;
        require_cuda(::cudaMallocHost(&pinned, bytes), "cudaMallocHost");
        std::fill_n(static_cast<float*>(pinned), count_, 1.0F);
        const OnGpu<float> staging(count_);
        const double down =
            timer_.median([&] { copy(pinned, master_.data(), bytes, cudaMemcpyDeviceToHost); });
        const double up =
            timer_.median([&] { copy(staging.data(), pinned, bytes, cudaMemcpyHostToDevice); });
        std::printf("\nsnapshot of %.1f GB\n", static_cast<double>(bytes) / 1e9);
        std::printf("peak to pinned memory %.1f GB/s, back %.1f GB/s\n", rate(down), rate(up));

        FusedOptimizer optimizer({{.master = master_.view(), .gradient = gradient_.view()}},
                                 AdamOptions{});
        const double alone = timer_.median([&] { optimizer.step(); });
        const double pause = timer_.median(
            [&] { copy(staging.data(), master_.data(), bytes, cudaMemcpyDeviceToDevice); });
        cudaStream_t side = nullptr;
        require_cuda(::cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "cudaStreamCreate");
        Timer background;
        std::vector<double> beside;
        cudaEvent_t begin = nullptr;
        cudaEvent_t end = nullptr;
        require_cuda(::cudaEventCreate(&begin), "cudaEventCreate");
        require_cuda(::cudaEventCreate(&end), "cudaEventCreate");
        require_cuda(::cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        require_cuda(::cudaEventRecord(begin, side), "cudaEventRecord");
        copy(pinned, staging.data(), bytes, cudaMemcpyDeviceToHost, side);
        require_cuda(::cudaEventRecord(end, side), "cudaEventRecord");
        while (::cudaEventQuery(end) == cudaErrorNotReady) {
            beside.push_back(background.once([&] { optimizer.step(); }));
        }
        float behind = 0.0F;
        require_cuda(::cudaEventElapsedTime(&behind, begin, end), "cudaEventElapsedTime");
        std::ranges::sort(beside);
        std::printf(
            "pause %.3f ms; then %.3f of the peak rate behind %zu steps, each %.3f of its "
            "time without\n",
            pause, down / static_cast<double>(behind), beside.size(),
            beside.empty() ? 0.0 : beside[beside.size() / 2] / alone);
        ::cudaEventDestroy(begin);
        ::cudaEventDestroy(end);
        ::cudaStreamDestroy(side);
        ::cudaFreeHost(pinned);
    }

    std::size_t count_;
    OnGpu<float> master_;
    OnGpu<float> gradient_;
    OnGpu<bfloat16> low_gradient_;
    OnGpu<bfloat16> shadow_;
    Timer timer_;
    double copy_rate_ = 0.0;
};

}  // namespace
}  // namespace regroup::testing

int main(int argc, char** argv) {
    const int millions = argc > 1 ? std::atoi(argv[1]) : 400;
    if (millions < 1) {
        std::fprintf(stderr, "usage: optimizer_bench [millions of parameters]\n");
        return 2;
    }
    const regroup::cuda::Availability found = regroup::cuda::availability();
    if (found.device_count == 0) {
        std::printf("optimizer_bench: skipped: %s\n", found.problem.c_str());
        return regroup::gpu::kSkipped;
    }
    try {
        regroup::testing::Bench(static_cast<std::size_t>(millions) * 1'000'000).run();
        return 0;
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "optimizer_bench: %s\n", error.what());
        return 1;
    }
}
