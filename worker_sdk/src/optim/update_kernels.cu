// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {
namespace {

using cuda::kBlockThreads;
using cuda::kLanes;

struct NoShadow {};

/// The same elements of each tensor, in registers.
template <class Rule, int moments, class Gradient, class Shadow, int width>
struct Elements {
    float master[width];
    float gradient[width];
    float moment[moments == 0 ? 1 : moments][width];

    __device__ __forceinline__ void load(const FlatTensors& tensors, std::size_t index) {
        cuda::load(tensors.master, index, master);
        cuda::load(static_cast<const Gradient*>(tensors.gradient), index, gradient);
#pragma unroll
        for (int i = 0; i < moments; ++i) {
            cuda::load(tensors.moments[i], index, moment[i]);
        }
    }

    __device__ __forceinline__ void advance(const Rule& rule, const StepState& step) {
#pragma unroll
        for (int lane = 0; lane < width; ++lane) {
            if constexpr (moments == 0) {
                update(rule, step, master[lane], gradient[lane]);
            } else if constexpr (moments == 1) {
                update(rule, step, master[lane], gradient[lane], moment[0][lane]);
            } else {
                update(rule, step, master[lane], gradient[lane], moment[0][lane], moment[1][lane]);
            }
        }
    }

    __device__ __forceinline__ void store(const FlatTensors& tensors, std::size_t index) const {
        cuda::store(tensors.master, index, master);
#pragma unroll
        for (int i = 0; i < moments; ++i) {
            cuda::store(tensors.moments[i], index, moment[i]);
        }
        if constexpr (!std::is_same_v<Shadow, NoShadow>) {
            cuda::store(static_cast<Shadow*>(tensors.shadow), index, master);
        }
    }
};

template <class Rule, int moments, class Gradient, class Shadow>
__global__ void __launch_bounds__(kBlockThreads)
    update_kernel(const Rule rule, const StepState* __restrict__ step_in,
                  const FlatTensors tensors, const std::size_t packs) {
    const StepState step = *step_in;
    if (step.skip != 0) {
        return;
    }
    using Wide = Elements<Rule, moments, Gradient, Shadow, kLanes>;
    using Single = Elements<Rule, moments, Gradient, Shadow, 1>;
    const std::size_t stride = cuda::thread_count();
    for (std::size_t i = cuda::thread_index(); i < packs; i += 2 * stride) {
        // All loads of both are in flight before the first is used.
        Wide first;
        Wide second;
        const bool has_second = i + stride < packs;
        first.load(tensors, i);
        if (has_second) {
            second.load(tensors, i + stride);
        }
        first.advance(rule, step);
        first.store(tensors, i);
        if (has_second) {
            second.advance(rule, step);
            second.store(tensors, i + stride);
        }
    }
    for (std::size_t i = packs * kLanes + cuda::thread_index(); i < tensors.count; i += stride) {
        Single single;
        single.load(tensors, i);
        single.advance(rule, step);
        single.store(tensors, i);
    }
}

template <class Rule, int moments, class Gradient, class Shadow>
int launch_typed(const Rule& rule, const StepState* step, const FlatTensors& tensors,
                 void* stream) {
    bool wide = cuda::is_aligned(tensors.master) &&
                cuda::is_aligned(static_cast<const Gradient*>(tensors.gradient));
    if constexpr (!std::is_same_v<Shadow, NoShadow>) {
        wide = wide && cuda::is_aligned(static_cast<const Shadow*>(tensors.shadow));
    }
    const std::size_t packs = wide ? tensors.count / kLanes : 0;
    const std::size_t items = packs > 0 ? packs : tensors.count;
    return cuda::launch(update_kernel<Rule, moments, Gradient, Shadow>, items, stream, rule, step,
                        tensors, packs);
}

template <class Rule, int moments, class Gradient>
int launch_with_gradient(const Rule& rule, const StepState* step, const FlatTensors& tensors,
                         void* stream) {
    if (tensors.shadow == nullptr) {
        return launch_typed<Rule, moments, Gradient, NoShadow>(rule, step, tensors, stream);
    }
    return tensors.shadow_dtype == DType::float16
               ? launch_typed<Rule, moments, Gradient, __half>(rule, step, tensors, stream)
               : launch_typed<Rule, moments, Gradient, __nv_bfloat16>(rule, step, tensors, stream);
}

template <int moments, class Rule>
int launch_with_moments(const Rule& rule, const StepState* step, const FlatTensors& tensors,
                        void* stream) {
    switch (tensors.gradient_dtype) {
        case DType::float32:
            return launch_with_gradient<Rule, moments, float>(rule, step, tensors, stream);
        case DType::float16:
            return launch_with_gradient<Rule, moments, __half>(rule, step, tensors, stream);
        case DType::bfloat16:
            return launch_with_gradient<Rule, moments, __nv_bfloat16>(rule, step, tensors, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

// One thread: computes the values that are the same for all elements, and counts the step unless it
// is skipped, without the host.
template <class Rule>
__global__ void begin_step_kernel(StepState* step, const ScalerState* scaler, bool divide,
                                  Rule rule) {
    begin_step(*step, scaler, divide, rule);
}

__global__ void set_learning_rate_kernel(StepState* step, double learning_rate) {
    step->learning_rate = learning_rate;
}

}  // namespace

int launch_set_learning_rate(StepState* step, double learning_rate, void* stream) {
    return cuda::launch(set_learning_rate_kernel, 1, stream, step, learning_rate);
}

int launch_begin_step(StepState* step, const ScalerState* scaler, bool divide, const SgdRule& rule,
                      void* stream) {
    return cuda::launch(begin_step_kernel<SgdRule>, 1, stream, step, scaler, divide, rule);
}

int launch_begin_step(StepState* step, const ScalerState* scaler, bool divide, const AdamRule& rule,
                      void* stream) {
    return cuda::launch(begin_step_kernel<AdamRule>, 1, stream, step, scaler, divide, rule);
}

int launch_update(const SgdRule& rule, const StepState* step, const FlatTensors& tensors,
                  void* stream) {
    return tensors.moments[0] == nullptr ? launch_with_moments<0>(rule, step, tensors, stream)
                                         : launch_with_moments<1>(rule, step, tensors, stream);
}

int launch_update(const AdamRule& rule, const StepState* step, const FlatTensors& tensors,
                  void* stream) {
    return launch_with_moments<2>(rule, step, tensors, stream);
}

}  // namespace regroup::optim
