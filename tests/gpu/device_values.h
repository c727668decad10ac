// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/cuda.h>
#include <regroup/error.h>
#include <regroup/tensor_view.h>

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <string>
#include <utility>
#include <vector>

namespace regroup::gpu {

inline void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess) {
        throw Error(Errc::system, std::string(call) + ": " + cudaGetErrorString(error));
    }
}

/// A copy from pageable memory, or a cudaMemset, may still be under way when its call returns, and
/// other streams do not wait for it.
inline void await_default_stream() {
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

/// Values on the current GPU.
template <class T>
class DeviceValues {
   public:
    DeviceValues(const std::vector<T>& values, Device device)
        : count_(values.size()), device_(device) {
        check(cudaMalloc(&data_, std::max<std::size_t>(count_, 1) * sizeof(T)), "cudaMalloc");
        set(values);
    }
    DeviceValues(std::size_t count, Device device) : DeviceValues(std::vector<T>(count), device) {}
    ~DeviceValues() { (void)cudaFree(data_); }
    DeviceValues(const DeviceValues&) = delete;
    DeviceValues& operator=(const DeviceValues&) = delete;

    void set(const std::vector<T>& values) {
        check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              "cudaMemcpy");
        await_default_stream();
    }
    [[nodiscard]] std::vector<T> get() const {
        std::vector<T> values(count_);
        check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
        return values;
    }
    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] TensorView view() const { return {data_, count_, DTypeOf<T>::value, device_}; }

   private:
    void* data_ = nullptr;
    std::size_t count_;
    Device device_;
};

/// A stream that its owner destroys.
class OwnStream {
   public:
    OwnStream() {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    ~OwnStream() { (void)cudaStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    [[nodiscard]] cudaStream_t get() const { return stream_; }
    void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

   private:
    cudaStream_t stream_ = nullptr;
};

/// The work of a stream while `body` ran, captured as an executable graph.
class Graph {
   public:
    template <class Body>
    Graph(const OwnStream& stream, const Body& body) {
        cudaGraph_t graph = nullptr;
        check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
        body();
        check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
        const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
        (void)cudaGraphDestroy(graph);
        check(made, "cudaGraphInstantiate");
    }
    ~Graph() { (void)cudaGraphExecDestroy(executable_); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(const OwnStream& stream) const {
        check(cudaGraphLaunch(executable_, stream.get()), "cudaGraphLaunch");
    }

   private:
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace regroup::gpu
