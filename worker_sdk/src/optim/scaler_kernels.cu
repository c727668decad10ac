// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/lanes.cuh"
#include "worker_sdk/src/optim/kernels.h"

namespace regroup::optim {
namespace {

using cuda::kBlockThreads;
using cuda::kLanes;
using cuda::launch;
using cuda::thread_count;
using cuda::thread_index;

__global__ void update_scale_kernel(ScalerState* state, ScalerRule rule) {
    update_scale(*state, rule);
}

__global__ void report_overflow_kernel(ScalerState* state) {
    state->overflow = 1.0F;
}

// The exponents of inf and NaN are all ones. `ones` holds them for one element, or for both that
// share a 32-bit word.
struct Exponents {
    unsigned low;
    unsigned high;

    __device__ bool in(unsigned word) const {
        return (word & low) == low || (word & high) == high;
    }
};

Exponents exponents_of(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return {0x7c00U, 0x7c000000U};
        case DType::bfloat16:
            return {0x7f80U, 0x7f800000U};
        default:
            return {0x7f800000U, 0x7f800000U};
    }
}

// Words of 16 bytes, four of them in flight.
__global__ void __launch_bounds__(kBlockThreads)
    check_kernel(const uint4* __restrict__ values, std::size_t count, Exponents exponents,
                 ScalerState* state) {
    constexpr int kInFlight = 4;
    const std::size_t stride = thread_count();
    bool found = false;
    for (std::size_t first = thread_index(); first < count; first += kInFlight * stride) {
        uint4 words[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            const std::size_t at = first + static_cast<std::size_t>(i) * stride;
            words[i] = at < count ? values[at] : uint4{};
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            found = found || exponents.in(words[i].x) || exponents.in(words[i].y) ||
                    exponents.in(words[i].z) || exponents.in(words[i].w);
        }
    }
    if (found) {
        state->overflow = 1.0F;  // All threads write the same value.
    }
}

// Element by element: the ends of a buffer, and one that is not aligned.
template <class Word>
__global__ void __launch_bounds__(kBlockThreads)
    check_each_kernel(const Word* __restrict__ values, std::size_t count, unsigned exponent,
                      ScalerState* state) {
    bool found = false;
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        found = found || (values[i] & exponent) == exponent;
    }
    if (found) {
        state->overflow = 1.0F;
    }
}

__global__ void __launch_bounds__(kBlockThreads)
    unscale_kernel(float* __restrict__ values, std::size_t packs, std::size_t count,
                   ScalerState* state) {
    const float factor = 1.0F / state->scale;
    const float largest = 3.402823466e38F;
    bool found = false;
    for (std::size_t i = thread_index(); i < packs; i += thread_count()) {
        float lanes[kLanes];
        cuda::load(values, i, lanes);
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
            found = found || !(fabsf(lanes[lane]) <= largest);
            lanes[lane] *= factor;
        }
        cuda::store(values, i, lanes);
    }
    for (std::size_t i = packs * kLanes + thread_index(); i < count; i += thread_count()) {
        found = found || !(fabsf(values[i]) <= largest);
        values[i] *= factor;
    }
    if (found) {
        state->overflow = 1.0F;
    }
}

template <class Word>
int launch_check_each(const void* values, std::size_t count, unsigned exponent, ScalerState* state,
                      void* stream) {
    return launch(check_each_kernel<Word>, count, stream, static_cast<const Word*>(values), count,
                  exponent, state);
}

}  // namespace

int launch_update_scale(ScalerState* state, const ScalerRule& rule, void* stream) {
    return launch(update_scale_kernel, 1, stream, state, rule);
}

int launch_report_overflow(ScalerState* state, void* stream) {
    return launch(report_overflow_kernel, 1, stream, state);
}

int launch_check(const void* values, DType dtype, std::size_t count, ScalerState* state,
                 void* stream) {
    const std::size_t bytes = count * item_bytes(dtype);
    const auto* const words = static_cast<const uint4*>(values);
    const bool wide = reinterpret_cast<std::uintptr_t>(values) % sizeof(uint4) == 0;
    const std::size_t word_count = wide ? bytes / sizeof(uint4) : 0;
    const Exponents exponents = exponents_of(dtype);
    const cudaError_t status =
        launch(check_kernel, word_count, stream, words, word_count, exponents, state);
    if (status != cudaSuccess) {
        return status;
    }
    const void* const rest = words + word_count;
    const std::size_t rest_bytes = bytes - word_count * sizeof(uint4);
    return dtype == DType::float32
               ? launch_check_each<std::uint32_t>(rest, rest_bytes / sizeof(std::uint32_t),
                                                  exponents.low, state, stream)
               : launch_check_each<std::uint16_t>(rest, rest_bytes / sizeof(std::uint16_t),
                                                  exponents.low, state, stream);
}

int launch_unscale(float* values, std::size_t count, ScalerState* state, void* stream) {
    const std::size_t packs = cuda::is_aligned(values) ? count / kLanes : 0;
    const std::size_t items = packs > 0 ? packs : count;
    return launch(unscale_kernel, items, stream, values, packs, count, state);
}

}  // namespace regroup::optim
