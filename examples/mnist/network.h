// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/tensor_view.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "idx.h"

namespace mnist {

/// One tensor of the network.
struct TensorSpec {
    const char* name;
    std::size_t count;
    std::size_t
        fan_in;  ///< Inputs of each output: PyTorch's first values are below 1/sqrt(fan_in).
};

// Convolutions of 5 x 5, each followed by max-pooling of 2 x 2 and relu, then two linear layers:
//
//     [n, 1, 28, 28] -> [n, 10, 24, 24] -> [n, 10, 12, 12]
//                    -> [n, 20, 8, 8]   -> [n, 20, 4, 4] = [n, 320] -> relu [n, 50] -> [n, 10]
inline constexpr std::size_t kKernel = 5;
inline constexpr std::size_t kChannels1 = 10;
inline constexpr std::size_t kChannels2 = 20;
inline constexpr std::size_t kFeatures = kChannels2 * 4 * 4;
inline constexpr std::size_t kHidden = 50;

enum : std::size_t {
    conv1_weight,  // [10, 1, 5, 5]
    conv1_bias,
    conv2_weight,  // [20, 10, 5, 5]
    conv2_bias,
    fc1_weight,  // [50, 320]
    fc1_bias,
    fc2_weight,  // [10, 50]
    fc2_bias,
};
inline constexpr std::size_t kTensorCount = fc2_bias + 1;
inline constexpr std::array<TensorSpec, kTensorCount> kTensors{{
    {"conv1.weight", 250, 25},
    {"conv1.bias", 10, 25},
    {"conv2.weight", 5000, 250},
    {"conv2.bias", 20, 250},
    {"fc1.weight", 16000, 320},
    {"fc1.bias", 50, 320},
    {"fc2.weight", 500, 50},
    {"fc2.bias", 10, 50},
}};
/// Where tensor `index` begins in the flat buffers, and where the last one ends.
constexpr std::size_t offset_of(std::size_t index) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < index; ++i) {
        offset += kTensors[i].count;
    }
    return offset;
}
inline constexpr std::size_t kParameterCount = offset_of(kTensorCount);

/// This rank's share of a global batch. May be empty.
struct Batch {
    std::vector<float> pixels;         ///< [n, 28, 28], of mean 0 and deviation 1
    std::vector<std::int32_t> labels;  ///< [n]
    /// [n, 50]: factors of the hidden units, 0 for dropped ones. Empty without dropout.
    std::vector<float> dropout;

    [[nodiscard]] std::size_t count() const { return labels.size(); }
};

/// How well the network has read a sample.
struct Score {
    float loss = 0.0F;
    float correct = 0.0F;  ///< 1 or 0
};

/// The network on one device. All parameters are in one buffer. The gradients belong to a
/// DistributedDataParallel.
class Network {
   public:
    virtual ~Network() = default;
    Network() = default;
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    /// Scores the samples, and keeps the values for `backward`.
    virtual void forward(const Batch& batch) = 0;
    /// Computes `weight` times the gradients of the last forward's sum of losses, from the last
    /// layer to the first, and reports each one when it is final. Before, all of them are zero.
    virtual void backward(const Batch& batch, float weight,
                          regroup::DistributedDataParallel& gradients) = 0;

    [[nodiscard]] virtual regroup::TensorView values() = 0;  ///< [kParameterCount] float32
    /// Of the last forward, by sample.
    [[nodiscard]] virtual std::vector<Score> scores() = 0;

    [[nodiscard]] regroup::TensorView value(std::size_t index) {
        return values().part(offset_of(index), kTensors[index].count);
    }
    [[nodiscard]] std::vector<regroup::Parameter> parameters() {
        std::vector<regroup::Parameter> list;
        for (std::size_t i = 0; i < kTensorCount; ++i) {
            list.push_back({value(i)});
        }
        return list;
    }
};

/// Where gradient `index` is, for a Network.
inline float* place_of(const regroup::DistributedDataParallel& gradients, std::size_t index) {
    return static_cast<float*>(gradients.gradient(index).data);
}
/// Of a rank without samples.
inline void report_all(regroup::DistributedDataParallel& gradients) {
    for (std::size_t index = kTensorCount; index-- > 0;) {
        gradients.gradient_ready(index);
    }
}

[[nodiscard]] std::unique_ptr<Network> make_cpu_network();
/// On this rank's GPU, with cuDNN and cuBLAS. Throws regroup::Error if there is none, or if this
/// program was built without.
[[nodiscard]] std::unique_ptr<Network> make_cuda_network(const regroup::Context& context);

}  // namespace mnist
