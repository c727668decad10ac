// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel on a GPU: streams, buckets, wires, a CUDA graph. One rank alone, or as
// many as a launcher starts:
//
//     data_parallel_check
//     REGROUP_SHARE_GPUS=1 regroup run --standalone --nproc-per-node=2 data_parallel_check
#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace regroup {
namespace {

constexpr std::size_t kCount = 100'003;  // no multiple of anything
constexpr std::size_t kParameterCount = 5;

void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess) {
        throw Error(Errc::system, std::string(call) + ": " + cudaGetErrorString(error));
    }
}

void require(bool holds, const std::string& what) {
    if (!holds) {
        throw Error(Errc::system, "not so: " + what);
    }
}

/// GPU memory of kCount floats.
class Values {
   public:
    Values() {
        check(cudaMalloc(&data_, kCount * sizeof(float)), "cudaMalloc");
        check(cudaMemset(data_, 0, kCount * sizeof(float)), "cudaMemset");
    }
    ~Values() { (void)cudaFree(data_); }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;
    [[nodiscard]] TensorView view(const Device& device) const {
        return {data_, kCount, DType::float32, device};
    }

   private:
    void* data_ = nullptr;
};

class OwnStream {
   public:
    OwnStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
    ~OwnStream() { (void)cudaStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    [[nodiscard]] cudaStream_t get() const { return stream_; }

   private:
    cudaStream_t stream_ = nullptr;
};

/// A model on the GPU, and a backward pass that writes whole numbers.
class Model {
   public:
    Model(ProcessGroup& group, DataParallelOptions options, bool in_callers_memory = false)
        : group_(group), values_(kParameterCount), gradients_(kParameterCount) {
        options.stream = {stream_.get()};
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < kParameterCount; ++i) {
            parameters.push_back({values_[i].view(group.device())});
            if (in_callers_memory) {
                parameters.back().gradient = gradients_[i].view(group.device());
            }
        }
        ddp_ = std::make_unique<DistributedDataParallel>(group, std::move(parameters),
                                                         std::vector<TensorView>(), options);
        for (std::size_t i = 0; i < kParameterCount; ++i) {
            sources_.push_back(pinned(static_cast<float>((i + 1) * (1 + group.rank()))));
        }
    }
    ~Model() {
        for (float* source : sources_) {
            (void)cudaFreeHost(source);
        }
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    /// Reports all gradients but the first `unused` ones, from the first to the last.
    void backward(std::size_t unused = 0) {
        for (std::size_t i = unused; i < kParameterCount; ++i) {
            const TensorView gradient = ddp_->gradient(i);
            check(cudaMemcpyAsync(gradient.data, sources_[i], gradient.bytes(),
                                  cudaMemcpyHostToDevice, stream_.get()),
                  "cudaMemcpyAsync");
            ddp_->gradient_ready(i);
        }
    }
    void require_mean(const std::string& what) const {
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
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
    [[nodiscard]] DistributedDataParallel& ddp() { return *ddp_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

   private:
    static float* pinned(float value) {
        void* data = nullptr;
        check(cudaMallocHost(&data, kCount * sizeof(float)), "cudaMallocHost");
        auto* values = static_cast<float*>(data);
        std::fill(values, values + kCount, value);
        return values;
    }

    ProcessGroup& group_;
    OwnStream stream_;
    std::vector<Values> values_;
    std::vector<Values> gradients_;
    std::vector<float*> sources_;
    std::unique_ptr<DistributedDataParallel> ddp_;
};

DataParallelOptions small_buckets() {
    return {.bucket_bytes = 2 * kCount * sizeof(float)};
}

void check_steps(ProcessGroup& group, const DataParallelOptions& options, bool in_callers_memory) {
    Model model(group, options, in_callers_memory);
    for (int step = 0; step < 3; ++step) {
        model.backward();
        model.ddp().finish_step();
        model.require_mean("step " + std::to_string(step));
    }
    require(model.ddp().buckets().front().parameters.front() == 0, "buckets as they were reported");
    require(!model.ddp().find_replica_difference(), "replicas are equal");
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

void check_graph(ProcessGroup& group) {
    Model model(group, small_buckets());
    model.backward();
    model.ddp().finish_step();  // Nothing moves after it.
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(model.stream(), cudaStreamCaptureModeThreadLocal), "capture");
    model.backward();
    model.ddp().finish_step();
    check(cudaStreamEndCapture(model.stream(), &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 3; ++replay) {
        check(cudaMemsetAsync(model.ddp().gradient_memory().data, 0,
                              model.ddp().gradient_memory().bytes, model.stream()),
              "cudaMemsetAsync");
        check(cudaGraphLaunch(executable, model.stream()), "cudaGraphLaunch");
        model.require_mean("replay " + std::to_string(replay));
    }
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(graph);
}

bool report(const char* name, const std::function<void()>& body) {
    try {
        body();
        std::printf("pass %s\n", name);
        return true;
    } catch (const Error& error) {
        std::printf("FAIL %s: %s\n", name, error.what());
        return false;
    }
}

int run() {
    const auto group = ProcessGroup::create("nccl", Context::from_environment());
    check(cudaSetDevice(group->device().index), "cudaSetDevice");
    bool good = report("gradient views", [&] { check_steps(*group, small_buckets(), false); });
    good &= report("the caller's memory", [&] { check_steps(*group, small_buckets(), true); });
    // Means of the small whole numbers are exact in these formats.
    for (const DType wire : {DType::float16, DType::bfloat16}) {
        DataParallelOptions options = small_buckets();
        options.hook = low_precision_hook(wire);
        good &= report(std::string(to_string(wire)).c_str(),
                       [&] { check_steps(*group, options, false); });
    }
    good &= report("unused parameters", [&] { check_unused(*group); });
    good &= report("CUDA graph of a step", [&] { check_graph(*group); });
    return good ? 0 : 1;
}

}  // namespace
}  // namespace regroup

int main() {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        std::printf("data_parallel_check: skipped: there is no GPU here\n");
        return 0;
    }
    try {
        return regroup::run();
    } catch (const regroup::Error& error) {
        std::fprintf(stderr, "data_parallel_check: %s\n", error.what());
        return 1;
    }
}
