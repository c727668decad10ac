// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "worker_sdk/src/optim/grad_scaler_impl.h"
#include "worker_sdk/src/optim/memory.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup {
namespace {

using optim::AdamRule;
using optim::check_tensors;
using optim::entry;
using optim::FlatTensors;
using optim::require;
using optim::SgdRule;
using optim::StepState;

constexpr std::size_t kStepBytes = 64;  // StepState and padding; the moments follow
static_assert(sizeof(StepState) <= kStepBytes);

void require_at_least_zero(double value, const char* name) {
    require(std::isfinite(value) && value >= 0.0,
            std::string(name) + " must be at least 0, not " + std::to_string(value));
}

void require_below_one(double value, const char* name) {
    require(value >= 0.0 && value < 1.0,
            std::string(name) + " must be at least 0 and below 1, not " + std::to_string(value));
}

SgdRule rule_of(const SgdOptions& options) {
    require_at_least_zero(options.learning_rate, "learning_rate");
    require_at_least_zero(options.momentum, "momentum");
    require_at_least_zero(options.weight_decay, "weight_decay");
    require(std::isfinite(options.dampening), "dampening must be a number");
    require(!options.nesterov || (options.momentum > 0.0 && options.dampening == 0.0),
            "nesterov needs a momentum, and no dampening");
    return {.momentum = static_cast<float>(options.momentum),
            .gradient_share = static_cast<float>(1.0 - options.dampening),
            .weight_decay = static_cast<float>(options.weight_decay),
            .nesterov = options.nesterov};
}

AdamRule rule_of(const AdamOptions& options) {
    require_at_least_zero(options.learning_rate, "learning_rate");
    require_below_one(options.beta1, "beta1");
    require_below_one(options.beta2, "beta2");
    require_at_least_zero(options.epsilon, "epsilon");
    require_at_least_zero(options.weight_decay, "weight_decay");
    const bool decoupled = options.decoupled_weight_decay;
    return {.beta1_exact = options.beta1,
            .beta2_exact = options.beta2,
            .decoupled_weight_decay = decoupled ? options.weight_decay : 0.0,
            .first_share = static_cast<float>(1.0 - options.beta1),
            .beta2 = static_cast<float>(options.beta2),
            .second_share = static_cast<float>(1.0 - options.beta2),
            .epsilon = static_cast<float>(options.epsilon),
            .weight_decay = decoupled ? 0.0F : static_cast<float>(options.weight_decay)};
}

std::size_t moment_count(const SgdOptions& options) {
    return options.momentum == 0.0 ? 0 : 1;
}

std::size_t flat_count_of(const std::vector<OptimizerTensors>& tensors) {
    return std::accumulate(tensors.begin(), tensors.end(), std::size_t{0},
                           [](std::size_t sum, const OptimizerTensors& each) {
                               return sum + optim::padded_count(each.master.count);
                           });
}

}  // namespace

struct FusedOptimizer::Impl {
    Impl(const std::vector<OptimizerTensors>& tensors_in, const optim::AnyRule& rule_in,
         std::size_t moment_count_in, double learning_rate_in)
        : device(tensors_in.front().master.device),
          rule(rule_in),
          moment_count(moment_count_in),
          flat_count(flat_count_of(tensors_in)),
          learning_rate(learning_rate_in),
          memory(device, kStepBytes + moment_count * flat_count * sizeof(float)) {
        std::size_t first = 0;
        for (const auto& [master, gradient, shadow] : tensors_in) {
            FlatTensors& flat = tensors.emplace_back();
            flat.master = static_cast<float*>(master.data);
            flat.gradient = gradient.data;
            flat.shadow = shadow.data;
            flat.count = master.count;
            flat.gradient_dtype = gradient.dtype;
            flat.shadow_dtype = shadow.dtype;
            for (std::size_t i = 0; i < moment_count; ++i) {
                flat.moments[i] = moments(i) + first;
            }
            first += optim::padded_count(master.count);
        }
        StepState state;
        state.learning_rate = learning_rate;
        memory.write(&state, 0, sizeof state, {});
    }

    // On `device`; the host may access it only if that is the CPU.
    [[nodiscard]] StepState* step() const noexcept {
        return static_cast<StepState*>(memory.data());
    }
    [[nodiscard]] float* moments(std::size_t index) const noexcept {
        auto* const bytes = static_cast<std::byte*>(memory.data()) + kStepBytes;
        return reinterpret_cast<float*>(bytes) + index * flat_count;
    }

    void run(const optim::ScalerState* scaler, bool divide, Stream stream) {
        const auto missing = std::ranges::find_if(tensors, [](const FlatTensors& each) {
            return each.gradient == nullptr && each.count > 0;
        });
        if (missing != tensors.end()) {
            require(false, "tensors " + std::to_string(missing - tensors.begin()) +
                               " have no gradient yet; call set_gradients() before the first step");
        }
        optim::run_kernels(device, stream, "an optimizer's step",
                           [&](const optim::Kernels& kernels, void* handle) {
                               return kernels.step(step(), scaler, divide, rule, tensors, handle);
                           });
    }

    Device device;
    optim::AnyRule rule;
    std::size_t moment_count;
    std::size_t flat_count;  // elements of one kind of moments, padding included
    double learning_rate;
    optim::Memory memory;
    std::vector<FlatTensors> tensors{};
};

FusedOptimizer::FusedOptimizer(const std::vector<OptimizerTensors>& tensors,
                               const SgdOptions& options) {
    check_tensors(tensors);
    impl_ = std::make_unique<Impl>(tensors, rule_of(options), moment_count(options),
                                   options.learning_rate);
}
FusedOptimizer::FusedOptimizer(const std::vector<OptimizerTensors>& tensors,
                               const AdamOptions& options) {
    check_tensors(tensors);
    impl_ = std::make_unique<Impl>(tensors, rule_of(options), 2, options.learning_rate);
}
FusedOptimizer::~FusedOptimizer() = default;
FusedOptimizer::FusedOptimizer(FusedOptimizer&&) noexcept = default;
FusedOptimizer& FusedOptimizer::operator=(FusedOptimizer&&) noexcept = default;

void FusedOptimizer::step(Stream stream) {
    impl_->run(nullptr, false, stream);
}

void FusedOptimizer::step(const GradScaler& scaler, Stream stream) {
    const GradScaler::Impl& other = *scaler.impl_;
    require(other.device == impl_->device, "it works on " + to_string(impl_->device) +
                                               ", but the gradient scaler on " +
                                               to_string(other.device));
    impl_->run(other.state(), !other.unscaled, stream);
}

void FusedOptimizer::set_gradients(std::span<const ConstTensorView> gradients) {
    std::vector<FlatTensors>& tensors = impl_->tensors;
    optim::check_gradients(gradients, tensors, impl_->device,
                           [](const FlatTensors& each) { return each.count; });
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        tensors[index].gradient = gradients[index].data;
        tensors[index].gradient_dtype = gradients[index].dtype;
    }
}

void FusedOptimizer::set_gradients(const DistributedDataParallel& ddp) {
    set_gradients(optim::gradients_of(ddp));
}

void FusedOptimizer::set_learning_rate(double learning_rate, Stream stream) {
    require_at_least_zero(learning_rate, "learning_rate");
    impl_->learning_rate = learning_rate;
    optim::run_kernels(impl_->device, stream, "setting the learning rate",
                       [&](const optim::Kernels& kernels, void* handle) {
                           return kernels.set_learning_rate(impl_->step(), learning_rate, handle);
                       });
}

double FusedOptimizer::learning_rate() const noexcept {
    return impl_->learning_rate;
}

void FusedOptimizer::write_shadows(Stream stream) {
    optim::write_shadows(impl_->device, impl_->tensors, stream);
}

std::int64_t FusedOptimizer::step_count(Stream stream) const {
    StepState state;
    impl_->memory.read(&state, 0, sizeof state, stream);
    return state.step_count;
}

std::vector<TensorView> FusedOptimizer::state() const {
    std::vector<TensorView> views{{&impl_->step()->step_count, 1, DType::int64, impl_->device}};
    for (std::size_t i = 0; i < impl_->moment_count; ++i) {
        views.emplace_back(impl_->moments(i), impl_->flat_count, DType::float32, impl_->device);
    }
    return views;
}

void FusedOptimizer::save(Checkpoint& checkpoint, std::string_view prefix, Stream stream) const {
    checkpoint.set_integer(entry(prefix, "step_count"), step_count(stream));
    checkpoint.set_number(entry(prefix, "learning_rate"), impl_->learning_rate);
    std::vector<float> values(impl_->flat_count);
    const std::size_t bytes = values.size() * sizeof(float);
    for (std::size_t i = 0; i < impl_->moment_count; ++i) {
        impl_->memory.read(values.data(), kStepBytes + i * bytes, bytes, stream);
        checkpoint.set_tensor(entry(prefix, "moment" + std::to_string(i + 1)),
                              std::span<const float>(values));
    }
}

void FusedOptimizer::load(const Checkpoint& checkpoint, std::string_view prefix, Stream stream) {
    StepState state;
    state.step_count = checkpoint.integer(entry(prefix, "step_count"));
    state.learning_rate = checkpoint.number(entry(prefix, "learning_rate"));
    // Everything is read before anything is replaced: a wrong checkpoint changes nothing.
    std::vector<std::vector<float>> moments(impl_->moment_count);
    for (std::size_t i = 0; i < moments.size(); ++i) {
        moments[i].resize(impl_->flat_count);
        checkpoint.read_tensor(entry(prefix, "moment" + std::to_string(i + 1)),
                               std::span<float>(moments[i]));
    }
    const std::size_t bytes = impl_->flat_count * sizeof(float);
    for (std::size_t i = 0; i < moments.size(); ++i) {
        impl_->memory.write(moments[i].data(), kStepBytes + i * bytes, bytes, stream);
    }
    impl_->learning_rate = state.learning_rate;
    impl_->memory.write(&state, 0, sizeof state, stream);
}

}  // namespace regroup
