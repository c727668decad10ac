// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the optimizers and of the loss scale, once for the CPU and for the GPU.
// Compiled with contraction off on both (no a * b + c in one rounding), and without library
// functions whose last bit differs between platforms, so that both give the same bits.
#pragma once

#include <cstdint>
#include <variant>

#if defined(__CUDACC__)
#define REGROUP_EVERYWHERE __host__ __device__ __forceinline__
#else
#include <cmath>
#define REGROUP_EVERYWHERE inline
#endif

namespace regroup::optim {

/// The state of a GradScaler, on its device.
struct ScalerState {
    float scale = 1.0F;
    float overflow = 0.0F;  ///< Not zero if the present step has found an overflow.
    std::int32_t good_steps = 0;
    std::int32_t reserved = 0;
    std::int64_t skipped_steps = 0;
};

struct ScalerRule {
    float growth_factor;
    float backoff_factor;
    std::int32_t growth_interval;
};

REGROUP_EVERYWHERE void update_scale(ScalerState& state, const ScalerRule& rule) {
    if (state.overflow != 0.0F) {
        state.scale *= rule.backoff_factor;
        state.good_steps = 0;
        ++state.skipped_steps;
    } else if (++state.good_steps >= rule.growth_interval) {
        const float grown = state.scale * rule.growth_factor;
        state.scale = grown <= 3.402823466e38F ? grown : state.scale;
        state.good_steps = 0;
    }
    state.overflow = 0.0F;
}

/// The state of an optimizer without the moments, on its device, and the values of the present
/// step, which `begin_step` computes once for all elements.
struct StepState {
    std::int64_t step_count = 0;
    double learning_rate = 0.0;

    std::int32_t skip = 0;
    std::int32_t first = 0;  ///< The first step that is not skipped.
    float gradient_factor = 1.0F;
    float step_size = 0.0F;
    float shrink = 1.0F;  ///< Decoupled weight decay.
    float second_moment_root = 1.0F;
};

struct SgdRule {
    float momentum;
    float gradient_share;  ///< 1 - dampening
    float weight_decay;
    bool nesterov;
};

struct AdamRule {
    double beta1_exact;  ///< For the bias corrections.
    double beta2_exact;
    double decoupled_weight_decay;
    float first_share;  ///< 1 - beta1
    float beta2;
    float second_share;  ///< 1 - beta2
    float epsilon;
    float weight_decay;
};

using AnyRule = std::variant<SgdRule, AdamRule>;

template <class T>
REGROUP_EVERYWHERE T square_root(T value) {
#if defined(__CUDACC__)
    return sqrt(value);
#else
    return std::sqrt(value);
#endif
}

/// base ^ exponent, by squaring.
REGROUP_EVERYWHERE double power(double base, std::int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        result = (exponent & 1) != 0 ? result * base : result;
        base *= base;
    }
    return result;
}

/// `scaler` may be null: gradients that are not scaled.
REGROUP_EVERYWHERE void begin_step(StepState& step, const ScalerState* scaler, bool divide) {
    step.skip = scaler != nullptr && scaler->overflow != 0.0F ? 1 : 0;
    if (step.skip == 0) {
        ++step.step_count;
    }
    step.first = step.step_count == 1 ? 1 : 0;
    step.gradient_factor = scaler != nullptr && divide ? 1.0F / scaler->scale : 1.0F;
}

REGROUP_EVERYWHERE void begin_step(StepState& step, const ScalerState* scaler, bool divide,
                                   const SgdRule& /*rule*/) {
    begin_step(step, scaler, divide);
    step.step_size = static_cast<float>(step.learning_rate);
}

REGROUP_EVERYWHERE void begin_step(StepState& step, const ScalerState* scaler, bool divide,
                                   const AdamRule& rule) {
    begin_step(step, scaler, divide);
    const double first_correction = 1.0 - power(rule.beta1_exact, step.step_count);
    const double second_correction = 1.0 - power(rule.beta2_exact, step.step_count);
    step.step_size = static_cast<float>(step.learning_rate / first_correction);
    step.shrink = static_cast<float>(1.0 - step.learning_rate * rule.decoupled_weight_decay);
    step.second_moment_root = static_cast<float>(square_root(second_correction));
}

/// One element without momentum.
REGROUP_EVERYWHERE void update(const SgdRule& rule, const StepState& step, float& parameter,
                               float gradient) {
    gradient = gradient * step.gradient_factor + rule.weight_decay * parameter;
    parameter -= step.step_size * gradient;
}

/// One element with momentum.
REGROUP_EVERYWHERE void update(const SgdRule& rule, const StepState& step, float& parameter,
                               float gradient, float& velocity) {
    gradient = gradient * step.gradient_factor + rule.weight_decay * parameter;
    const float moved = rule.momentum * velocity + rule.gradient_share * gradient;
    velocity = step.first != 0 ? gradient : moved;
    const float ahead = gradient + rule.momentum * velocity;
    parameter -= step.step_size * (rule.nesterov ? ahead : velocity);
}

/// One element.
REGROUP_EVERYWHERE void update(const AdamRule& rule, const StepState& step, float& parameter,
                               float gradient, float& first_moment, float& second_moment) {
    parameter *= step.shrink;
    gradient = gradient * step.gradient_factor + rule.weight_decay * parameter;
    first_moment += rule.first_share * (gradient - first_moment);
    second_moment = rule.beta2 * second_moment + rule.second_share * gradient * gradient;
    const float root = square_root(second_moment);
    parameter -= step.step_size * first_moment / (root / step.second_moment_root + rule.epsilon);
}

}  // namespace regroup::optim
