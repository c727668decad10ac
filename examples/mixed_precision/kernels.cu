// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace mixed_precision {
namespace {

constexpr std::size_t kThreads = 256;

unsigned blocks_for(std::size_t items) {
    return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}
__device__ std::size_t thread_index() {
    return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

/// Calls `action` with a null pointer to the type of `dtype`, and returns its result.
template <class Action>
int with_type(DType dtype, const Action& action) {
    if (dtype == DType::float16) {
        return action(static_cast<__half*>(nullptr));
    }
    if (dtype == DType::bfloat16) {
        return action(static_cast<__nv_bfloat16*>(nullptr));
    }
    return action(static_cast<float*>(nullptr));
}

/// Starts `kernel` with a thread for each of `items`, if there are any. Returns the error of the
/// launch, or cudaSuccess.
template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), std::size_t items, Arguments... arguments) {
    if (items == 0) {
        return cudaSuccess;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks_for(items));
    config.blockDim = dim3(kThreads);
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class From, class To>
__global__ void convert(const From* from, To* to, std::size_t count) {
    const std::size_t i = thread_index();
    if (i < count) {
        to[i] = static_cast<To>(static_cast<float>(from[i]));
    }
}

template <class T>
__global__ void add_bias(T* values, const T* bias, std::size_t count, std::size_t columns,
                         bool relu) {
    const std::size_t i = thread_index();
    if (i < count) {
        const float value = static_cast<float>(values[i]) + static_cast<float>(bias[i % columns]);
        values[i] = static_cast<T>(relu && value < 0.0F ? 0.0F : value);  // NaN stays
    }
}

template <class T>
__global__ void relu_backward(const T* values, T* by_values, std::size_t count) {
    const std::size_t i = thread_index();
    if (i < count && !(static_cast<float>(values[i]) > 0.0F)) {
        by_values[i] = static_cast<T>(0.0F);
    }
}

// One thread for each column, so that reads are coalesced.
template <class T, class Bias>
__global__ void sum_rows(const T* by_values, std::size_t rows, std::size_t columns,
                         Bias* by_bias) {
    const std::size_t column = thread_index();
    if (column < columns) {
        float sum = 0.0F;
        for (std::size_t row = 0; row < rows; ++row) {
            sum += static_cast<float>(by_values[row * columns + column]);
        }
        by_bias[column] = static_cast<Bias>(sum);
    }
}

struct Softmax {
    float most;
    float sum;
    int best;
};

template <class T>
__device__ Softmax softmax_of(const T* row, std::size_t classes) {
    Softmax result{static_cast<float>(row[0]), 0.0F, 0};
    for (std::size_t i = 1; i < classes; ++i) {
        const float score = static_cast<float>(row[i]);
        if (score > result.most) {
            result.most = score;
            result.best = static_cast<int>(i);
        }
    }
    for (std::size_t i = 0; i < classes; ++i) {
        result.sum += expf(static_cast<float>(row[i]) - result.most);
    }
    return result;
}

// One thread for each sample.
template <class T>
__global__ void add_losses(const T* scores, LossInput input, Totals* totals) {
    const std::size_t sample = thread_index();
    if (sample >= input.count) {
        return;
    }
    const T* const row = scores + sample * input.classes;
    const Softmax softmax = softmax_of(row, input.classes);
    const std::int32_t label = input.labels[sample];
    const float loss = logf(softmax.sum) - (static_cast<float>(row[label]) - softmax.most);
    if (isfinite(loss)) {
        atomicAdd(&totals->loss, static_cast<double>(loss));
        atomicAdd(&totals->correct, softmax.best == label ? 1.0 : 0.0);
        atomicAdd(&totals->samples, 1.0);
    }
}

template <class T>
__global__ void loss_backward(const T* scores, LossInput input, float weight, const float* scale,
                              T* by_scores) {
    const std::size_t sample = thread_index();
    if (sample >= input.count) {
        return;
    }
    const T* const row = scores + sample * input.classes;
    const Softmax softmax = softmax_of(row, input.classes);
    const float factor = weight * *scale;
    for (std::size_t i = 0; i < input.classes; ++i) {
        const float probability =
            expf(static_cast<float>(row[i]) - softmax.most) / softmax.sum;
        const float target = static_cast<std::int32_t>(i) == input.labels[sample] ? 1.0F : 0.0F;
        by_scores[sample * input.classes + i] = static_cast<T>(factor * (probability - target));
    }
}

}  // namespace

int launch_round(const float* from, void* to, DType dtype, std::size_t count) {
    return with_type(dtype, [&]<class T>(T*) {
        return launch(convert<float, T>, count, from, static_cast<T*>(to), count);
    });
}

int launch_widen(const void* from, DType dtype, float* to, std::size_t count) {
    return with_type(dtype, [&]<class T>(T*) {
        return launch(convert<T, float>, count, static_cast<const T*>(from), to, count);
    });
}

int launch_bias(void* values, const void* bias, DType dtype, std::size_t rows, std::size_t columns,
                bool relu) {
    return with_type(dtype, [&]<class T>(T*) {
        return launch(add_bias<T>, rows * columns, static_cast<T*>(values),
                      static_cast<const T*>(bias), rows * columns, columns, relu);
    });
}

int launch_relu_backward(const void* values, void* by_values, DType dtype, std::size_t count) {
    return with_type(dtype, [&]<class T>(T*) {
        return launch(relu_backward<T>, count, static_cast<const T*>(values),
                      static_cast<T*>(by_values), count);
    });
}

int launch_bias_backward(const void* by_values, DType dtype, std::size_t rows, std::size_t columns,
                         void* by_bias, DType bias_dtype) {
    return with_type(dtype, [&]<class T>(T*) {
        const auto* const from = static_cast<const T*>(by_values);
        return with_type(bias_dtype, [&]<class Bias>(Bias*) {
            return launch(sum_rows<T, Bias>, columns, from, rows, columns,
                          static_cast<Bias*>(by_bias));
        });
    });
}

int launch_loss(const LossInput& input, Totals* totals) {
    return with_type(input.dtype, [&]<class T>(T*) {
        return launch(add_losses<T>, input.count, static_cast<const T*>(input.scores), input,
                      totals);
    });
}

int launch_loss_backward(const LossInput& input, float weight, const float* scale,
                         void* by_scores) {
    return with_type(input.dtype, [&]<class T>(T*) {
        return launch(loss_backward<T>, input.count, static_cast<const T*>(input.scores), input,
                      weight, scale, static_cast<T*>(by_scores));
    });
}

}  // namespace mixed_precision
