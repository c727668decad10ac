// SPDX-License-Identifier: Apache-2.0
// In blocks that stay in the first-level cache: low-precision gradients are widened into one, the
// new masters are rounded from theirs, and memory is still read and written only once.
#include "worker_sdk/src/optim/cpu_update.h"

#include <algorithm>
#include <array>

#include "worker_sdk/src/base/float_arrays.h"

namespace regroup::optim {
namespace {

constexpr std::size_t kBlock = 1024;

/// Calls `update(first, gradients, count)` for block after block.
template <class Update>
void for_blocks(const FlatTensors& tensors, Update update) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    std::array<float, kBlock> widened;
    const auto* const gradient = static_cast<const std::byte*>(tensors.gradient);
    auto* const shadow = static_cast<std::byte*>(tensors.shadow);
    for (std::size_t first = 0; first < tensors.count; first += kBlock) {
        const std::size_t count = std::min(kBlock, tensors.count - first);
        const std::byte* const at = gradient + first * item_bytes(tensors.gradient_dtype);
        const auto* gradients = reinterpret_cast<const float*>(at);
        if (tensors.gradient_dtype != DType::float32) {
            widen(tensors.gradient_dtype, at, widened.data(), count);
            gradients = widened.data();
        }
        update(first, gradients, count);
        if (shadow != nullptr) {
            narrow(tensors.shadow_dtype, tensors.master + first,
                   shadow + first * item_bytes(tensors.shadow_dtype), count);
        }
    }
}

// By value: a compiler that sees a store through a float* would have to read the rule again.

void descend(const SgdRule rule, const StepState step, float* __restrict master,
             const float* __restrict gradient, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        update(rule, step, master[i], gradient[i]);
    }
}

void descend(const SgdRule rule, const StepState step, float* __restrict master,
             const float* __restrict gradient, float* __restrict velocity, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        update(rule, step, master[i], gradient[i], velocity[i]);
    }
}

void descend(const AdamRule rule, const StepState step, float* __restrict master,
             const float* __restrict gradient, float* __restrict first_moment,
             float* __restrict second_moment, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        update(rule, step, master[i], gradient[i], first_moment[i], second_moment[i]);
    }
}

}  // namespace

void update_on_cpu(const SgdRule& rule, const StepState& step, const FlatTensors& tensors) {
    for_blocks(tensors, [&](std::size_t first, const float* gradient, std::size_t count) {
        if (tensors.moments[0] == nullptr) {
            descend(rule, step, tensors.master + first, gradient, count);
        } else {
            descend(rule, step, tensors.master + first, gradient, tensors.moments[0] + first,
                    count);
        }
    });
}

void update_on_cpu(const AdamRule& rule, const StepState& step, const FlatTensors& tensors) {
    for_blocks(tensors, [&](std::size_t first, const float* gradient, std::size_t count) {
        descend(rule, step, tensors.master + first, gradient, tensors.moments[0] + first,
                tensors.moments[1] + first, count);
    });
}

void write_shadow_on_cpu(const FlatTensors& tensors) {
    if (tensors.shadow != nullptr) {
        narrow(tensors.shadow_dtype, tensors.master, tensors.shadow, tensors.count);
    }
}

void scale_on_cpu(float* values, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        values[i] *= factor;
    }
}

}  // namespace regroup::optim
