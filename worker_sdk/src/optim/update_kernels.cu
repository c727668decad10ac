// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/gpu_kernels.h"
#include "worker_sdk/src/optim/tensor_batch.h"

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

// Two packs for each thread.
constexpr std::size_t kUpdateChunk = std::size_t{2} * kLanes * kBlockThreads;

template <class Gradient, class Shadow>
__device__ __forceinline__ bool is_wide(const FlatTensors& tensors) {
    bool wide = cuda::is_aligned(tensors.master) &&
                cuda::is_aligned(static_cast<const Gradient*>(tensors.gradient));
    if constexpr (!std::is_same_v<Shadow, NoShadow>) {
        wide = wide && cuda::is_aligned(static_cast<const Shadow*>(tensors.shadow));
    }
    return wide;
}

template <class Rule, int moments, class Gradient, class Shadow, class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    update_kernel(const __grid_constant__ Batch batch, const Rule rule,
                  const StepState* __restrict__ step_in) {
    const StepState step = *step_in;
    if (step.skip != 0) {
        return;
    }
    using Wide = Elements<Rule, moments, Gradient, Shadow, kLanes>;
    using Single = Elements<Rule, moments, Gradient, Shadow, 1>;
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensors, part] = batch.place_of(chunk);
        const std::size_t begin = part * kUpdateChunk;
        const std::size_t end = min(tensors.count, begin + kUpdateChunk);
        const std::size_t packs_end =
            is_wide<Gradient, Shadow>(tensors) ? end / kLanes : begin / kLanes;
        const std::size_t pack = begin / kLanes + threadIdx.x;
        if (pack < packs_end) {
            // All loads of both are in flight before the first is used.
            Wide first;
            Wide second;
            const bool has_second = pack + kBlockThreads < packs_end;
            first.load(tensors, pack);
            if (has_second) {
                second.load(tensors, pack + kBlockThreads);
            }
            first.advance(rule, step);
            first.store(tensors, pack);
            if (has_second) {
                second.advance(rule, step);
                second.store(tensors, pack + kBlockThreads);
            }
        }
        for (std::size_t i = packs_end * kLanes + threadIdx.x; i < end; i += kBlockThreads) {
            Single single;
            single.load(tensors, i);
            single.advance(rule, step);
            single.store(tensors, i);
        }
    }
}

/// Updates the tensors with these dtypes.
template <class Rule, int moments, class Gradient, class Shadow>
int launch_typed(const Rule& rule, const StepState* step, std::span<const FlatTensors> tensors,
                 DType gradient_dtype, std::optional<DType> shadow_dtype, void* stream) {
    std::vector<FlatTensors> chosen;
    for (const FlatTensors& each : tensors) {
        const bool same_shadow = shadow_dtype
                                     ? each.shadow != nullptr && each.shadow_dtype == *shadow_dtype
                                     : each.shadow == nullptr;
        if (each.gradient_dtype == gradient_dtype && same_shadow) {
            chosen.push_back(each);
        }
    }
    return launch_in_batches<cuda::kHasLargeArguments>(
        std::span<const FlatTensors>(chosen), kUpdateChunk, [&](const auto& batch) -> int {
            using Batch = std::remove_cvref_t<decltype(batch)>;
            return cuda::launch_blocks(update_kernel<Rule, moments, Gradient, Shadow, Batch>,
                                       batch.chunk_count(), stream, batch, rule, step);
        });
}

template <int moments, class Gradient, class Rule>
int launch_with_gradient(const Rule& rule, const StepState* step,
                         std::span<const FlatTensors> tensors, DType dtype, void* stream) {
    int status = launch_typed<Rule, moments, Gradient, NoShadow>(rule, step, tensors, dtype,
                                                                 std::nullopt, stream);
    if (status == cudaSuccess) {
        status = launch_typed<Rule, moments, Gradient, __half>(rule, step, tensors, dtype,
                                                               DType::float16, stream);
    }
    if (status == cudaSuccess) {
        status = launch_typed<Rule, moments, Gradient, __nv_bfloat16>(rule, step, tensors, dtype,
                                                                      DType::bfloat16, stream);
    }
    return status;
}

template <int moments, class Rule>
int launch_with_moments(const Rule& rule, const StepState* step,
                        std::span<const FlatTensors> tensors, void* stream) {
    int status = launch_with_gradient<moments, float>(rule, step, tensors, DType::float32, stream);
    if (status == cudaSuccess) {
        status = launch_with_gradient<moments, __half>(rule, step, tensors, DType::float16, stream);
    }
    if (status == cudaSuccess) {
        status = launch_with_gradient<moments, __nv_bfloat16>(rule, step, tensors, DType::bfloat16,
                                                              stream);
    }
    return status;
}

int launch_update(const SgdRule& rule, const StepState* step, std::span<const FlatTensors> tensors,
                  void* stream) {
    return tensors.empty() || tensors.front().moments[0] == nullptr
               ? launch_with_moments<0>(rule, step, tensors, stream)
               : launch_with_moments<1>(rule, step, tensors, stream);
}

int launch_update(const AdamRule& rule, const StepState* step, std::span<const FlatTensors> tensors,
                  void* stream) {
    return launch_with_moments<2>(rule, step, tensors, stream);
}

template <class Shadow, class Batch>
__global__ void __launch_bounds__(kBlockThreads)
    shadow_kernel(const __grid_constant__ Batch batch) {
    for (std::uint32_t chunk = blockIdx.x; chunk < batch.chunk_count(); chunk += gridDim.x) {
        const auto [tensors, part] = batch.place_of(chunk);
        auto* const shadow = static_cast<Shadow*>(tensors.shadow);
        const std::size_t begin = part * kUpdateChunk;
        const std::size_t end = min(tensors.count, begin + kUpdateChunk);
        const bool wide = cuda::is_aligned(tensors.master) && cuda::is_aligned(shadow);
        const std::size_t packs_end = wide ? end / kLanes : begin / kLanes;
        const std::size_t pack = begin / kLanes + threadIdx.x;
        if (pack < packs_end) {
            // Both loads are in flight before the first is used.
            float first[kLanes];
            float second[kLanes];
            const bool has_second = pack + kBlockThreads < packs_end;
            cuda::load(tensors.master, pack, first);
            cuda::load(tensors.master, has_second ? pack + kBlockThreads : pack, second);
            cuda::store(shadow, pack, first);
            if (has_second) {
                cuda::store(shadow, pack + kBlockThreads, second);
            }
        }
        for (std::size_t i = packs_end * kLanes + threadIdx.x; i < end; i += kBlockThreads) {
            float single[1];
            cuda::load(tensors.master, i, single);
            cuda::store(shadow, i, single);
        }
    }
}

/// Writes the shadows of one dtype.
template <class Shadow>
int launch_shadows_of(DType dtype, std::span<const FlatTensors> tensors, void* stream) {
    std::vector<FlatTensors> chosen;
    for (const FlatTensors& each : tensors) {
        if (each.shadow != nullptr && each.shadow_dtype == dtype) {
            chosen.push_back(each);
        }
    }
    return launch_in_batches<cuda::kHasLargeArguments>(
        std::span<const FlatTensors>(chosen), kUpdateChunk, [&](const auto& batch) -> int {
            return cuda::launch_blocks(shadow_kernel<Shadow, std::remove_cvref_t<decltype(batch)>>,
                                       batch.chunk_count(), stream, batch);
        });
}

// One thread: computes the values that are the same for all elements, and counts the step unless it
// is skipped, without the host.
template <class Rule>
__global__ void begin_step_kernel(StepState* step, const ScalerState* scaler, bool divide,
                                  Rule rule) {
    begin_step(*step, scaler, divide, rule);
}

template <class Rule>
int launch_step_of(const Rule& rule, StepState* step, const ScalerState* scaler, bool divide,
                   std::span<const FlatTensors> tensors, void* stream) {
    const int status =
        cuda::launch_one(begin_step_kernel<Rule>, stream, step, scaler, divide, rule);
    return status != cudaSuccess ? status : launch_update(rule, step, tensors, stream);
}

__global__ void set_learning_rate_kernel(StepState* step, double learning_rate) {
    step->learning_rate = learning_rate;
}

}  // namespace

int GpuKernels::set_learning_rate(StepState* step, double learning_rate, void* stream) const {
    return cuda::launch_one(set_learning_rate_kernel, stream, step, learning_rate);
}

int GpuKernels::step(StepState* step, const ScalerState* scaler, bool divide, const AnyRule& rule,
                     std::span<const FlatTensors> tensors, void* stream) const {
    const auto* const sgd = std::get_if<SgdRule>(&rule);
    return sgd != nullptr
               ? launch_step_of(*sgd, step, scaler, divide, tensors, stream)
               : launch_step_of(std::get<AdamRule>(rule), step, scaler, divide, tensors, stream);
}

int GpuKernels::write_shadows(std::span<const FlatTensors> tensors, void* stream) const {
    const int status = launch_shadows_of<__half>(DType::float16, tensors, stream);
    return status != cudaSuccess
               ? status
               : launch_shadows_of<__nv_bfloat16>(DType::bfloat16, tensors, stream);
}

const Kernels& gpu_kernels() {
    static const GpuKernels kernels;
    return kernels;
}

}  // namespace regroup::optim
