// SPDX-License-Identifier: Apache-2.0
#include <regroup/grad_scaler.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "worker_sdk/src/base/float_arrays.h"
#include "worker_sdk/src/optim/grad_scaler_impl.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup {
namespace {

using optim::entry;
using optim::ScalerState;

void check_scaler(bool holds, const std::string& problem) {
    optim::require(holds, problem, "gradient scaler");
}

GradScalerOptions checked(const GradScalerOptions& options) {
    const auto shown = [](double value) { return ", not " + std::to_string(value); };
    check_scaler(std::isfinite(options.init_scale) && options.init_scale > 0.0,
                 "init_scale must be positive" + shown(options.init_scale));
    check_scaler(std::isfinite(options.growth_factor) && options.growth_factor >= 1.0,
                 "growth_factor must be at least 1" + shown(options.growth_factor));
    check_scaler(options.backoff_factor > 0.0 && options.backoff_factor < 1.0,
                 "backoff_factor must be between 0 and 1" + shown(options.backoff_factor));
    check_scaler(options.growth_interval >= 1, "growth_interval must be at least 1, not " +
                                                   std::to_string(options.growth_interval));
    return options;
}

void check_gradient(const ConstTensorView& gradient, const Device& device) {
    check_scaler(gradient.dtype == DType::float32 || gradient.dtype == DType::float16 ||
                     gradient.dtype == DType::bfloat16,
                 "gradients must be float32, float16 or bfloat16, not " +
                     std::string(to_string(gradient.dtype)));
    check_scaler(gradient.device == device, "it works on " + to_string(device) +
                                                ", but a gradient is on " +
                                                to_string(gradient.device));
}

}  // namespace

GradScaler::Impl::Impl(const GradScalerOptions& options, const Device& device_in)
    : device(device_in),
      enabled(options.enabled),
      rule{.growth_factor = static_cast<float>(options.growth_factor),
           .backoff_factor = static_cast<float>(options.backoff_factor),
           .growth_interval = options.growth_interval},
      memory(device, sizeof(ScalerState)) {
    ScalerState first;
    first.scale = enabled ? static_cast<float>(options.init_scale) : 1.0F;
    memory.write(&first, 0, sizeof first, {});
}

GradScaler::GradScaler(const GradScalerOptions& options, Device device)
    : impl_(std::make_unique<Impl>(checked(options), device)) {}
GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;

double GradScaler::scale(Stream stream) const {
    return static_cast<double>(impl_->read(stream).scale);
}

TensorView GradScaler::scale_tensor() const noexcept {
    return {&impl_->state()->scale, 1, DType::float32, impl_->device};
}

TensorView GradScaler::overflow_tensor() const noexcept {
    return {&impl_->state()->overflow, 1, DType::float32, impl_->device};
}

bool GradScaler::overflowed(Stream stream) const {
    return impl_->read(stream).overflow != 0.0F;
}

std::int64_t GradScaler::skipped_steps(Stream stream) const {
    return impl_->read(stream).skipped_steps;
}

void GradScaler::check(ConstTensorView gradient, Stream stream) {
    check_all(std::span(&gradient, 1), stream);
}

void GradScaler::check_all(std::span<const ConstTensorView> gradients, Stream stream) {
    for (const ConstTensorView& gradient : gradients) {
        check_gradient(gradient, impl_->device);
    }
    if (!impl_->enabled) {
        return;
    }
    optim::run_kernels(impl_->device, stream, "checking gradients for overflow",
                       [&](const optim::Kernels& kernels, void* handle) {
                           return kernels.check(gradients, impl_->state(), handle);
                       });
}

void GradScaler::unscale(TensorView gradient, Stream stream) {
    unscale_all(std::span(&gradient, 1), stream);
}

void GradScaler::unscale_all(std::span<const TensorView> gradients, Stream stream) {
    for (const TensorView& gradient : gradients) {
        check_gradient(gradient, impl_->device);
        check_scaler(
            gradient.dtype == DType::float32,
            "unscale takes float32 gradients, not " + std::string(to_string(gradient.dtype)) +
                ", in which they may be too small to be told from zero: use check(), and let "
                "the optimizer's step divide");
    }
    if (!impl_->enabled) {
        return;
    }
    impl_->unscaled = true;
    optim::run_kernels(impl_->device, stream, "unscaling gradients",
                       [&](const optim::Kernels& kernels, void* handle) {
                           return kernels.unscale(gradients, impl_->state(), handle);
                       });
}

void GradScaler::report_overflow(Stream stream) {
    if (!impl_->enabled) {
        return;
    }
    optim::run_kernels(impl_->device, stream, "noting an overflow",
                       [&](const optim::Kernels& kernels, void* handle) {
                           return kernels.report_overflow(impl_->state(), handle);
                       });
}

Work GradScaler::agree(ProcessGroup& group) {
    return group.all_reduce(overflow_tensor(), ReduceOp::max);
}

void GradScaler::update(Stream stream) {
    impl_->unscaled = false;
    if (!impl_->enabled) {
        return;
    }
    optim::run_kernels(impl_->device, stream, "updating the loss scale",
                       [&](const optim::Kernels& kernels, void* handle) {
                           return kernels.update_scale(impl_->state(), impl_->rule, handle);
                       });
}

std::vector<TensorView> GradScaler::state() const {
    ScalerState* const state = impl_->state();
    return {{&state->scale, 1, DType::float32, impl_->device},
            {&state->good_steps, 1, DType::int32, impl_->device},
            {&state->skipped_steps, 1, DType::int64, impl_->device}};
}

void GradScaler::save(Checkpoint& checkpoint, std::string_view prefix, Stream stream) const {
    const ScalerState state = impl_->read(stream);
    checkpoint.set_number(entry(prefix, "scale"), static_cast<double>(state.scale));
    checkpoint.set_integer(entry(prefix, "good_steps"), state.good_steps);
    checkpoint.set_integer(entry(prefix, "skipped_steps"), state.skipped_steps);
}

void GradScaler::load(const Checkpoint& checkpoint, std::string_view prefix, Stream stream) {
    const auto scale = static_cast<float>(checkpoint.number(entry(prefix, "scale")));
    const std::int64_t good_steps = checkpoint.integer(entry(prefix, "good_steps"));
    ScalerState state;
    state.skipped_steps = checkpoint.integer(entry(prefix, "skipped_steps"));
    check_scaler(std::isfinite(scale) && scale > 0.0F,
                 "the checkpoint's scale must be positive, not " + std::to_string(scale));
    check_scaler(good_steps >= 0 && good_steps <= std::numeric_limits<std::int32_t>::max() &&
                     state.skipped_steps >= 0,
                 "the checkpoint's counts of steps are " + std::to_string(good_steps) + " and " +
                     std::to_string(state.skipped_steps) + ", which no scaler has written");
    state.good_steps = static_cast<std::int32_t>(good_steps);
    state.scale = impl_->enabled ? scale : 1.0F;
    impl_->unscaled = false;
    impl_->memory.write(&state, 0, sizeof state, stream);
}

}  // namespace regroup
