// SPDX-License-Identifier: Apache-2.0
#include "loss.h"

namespace mnist {
namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = static_cast<int>(kClasses);

// One thread for each sample.
__global__ void cross_entropy(float* outputs, const std::int32_t* labels, int count,
                              Score* scores) {
    const int sample = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (sample >= count) {
        return;
    }
    float* const row = outputs + sample * kOutputs;
    int best = 0;
    for (int i = 1; i < kOutputs; ++i) {
        best = row[i] > row[best] ? i : best;
    }
    const float most = row[best];
    const float target = row[labels[sample]] - most;
    float sum = 0.0F;
    for (int i = 0; i < kOutputs; ++i) {
        row[i] = expf(row[i] - most);
        sum += row[i];
    }
    for (int i = 0; i < kOutputs; ++i) {
        row[i] /= sum;
    }
    scores[sample].loss = logf(sum) - target;
    scores[sample].correct = best == labels[sample] ? 1.0F : 0.0F;
}

__global__ void cross_entropy_backward(float* probabilities, const std::int32_t* labels, int count,
                                       float weight) {
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (at < count * kOutputs) {
        const float target = at % kOutputs == labels[at / kOutputs] ? 1.0F : 0.0F;
        probabilities[at] = weight * (probabilities[at] - target);
    }
}

/// Starts `kernel` with a thread for each of `items`. Returns the error of the launch, or
/// cudaSuccess.
template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), int items, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>((items + kThreads - 1) / kThreads));
    config.blockDim = dim3(kThreads);
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

int launch_cross_entropy(float* outputs, const std::int32_t* labels, int count, Score* scores) {
    return launch(cross_entropy, count, outputs, labels, count, scores);
}

int launch_cross_entropy_backward(float* probabilities, const std::int32_t* labels, int count,
                                  float weight) {
    return launch(cross_entropy_backward, count * kOutputs, probabilities, labels, count, weight);
}

}  // namespace mnist
