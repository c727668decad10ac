// SPDX-License-Identifier: Apache-2.0
// In blocks that stay in the first-level cache: low-precision gradients are widened into one, the
// new masters are rounded from theirs, and memory is still read and written only once.
#include <algorithm>
#include <array>

#include "worker_sdk/src/base/float_arrays.h"
#include "worker_sdk/src/optim/kernels.h"

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

template <class T>
void multiply(T* values, std::size_t count, T factor) {
    for (std::size_t i = 0; i < count; ++i) {
        values[i] *= factor;
    }
}

template <class T>
void add_squares(const T* __restrict values, std::size_t count, double* __restrict lanes) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(values[i]);
        lanes[i] += value * value;
    }
}

void update_all(const SgdRule& rule, const StepState& step, const FlatTensors& tensors) {
    for_blocks(tensors, [&](std::size_t first, const float* gradient, std::size_t count) {
        if (tensors.moments[0] == nullptr) {
            descend(rule, step, tensors.master + first, gradient, count);
        } else {
            descend(rule, step, tensors.master + first, gradient, tensors.moments[0] + first,
                    count);
        }
    });
}

void update_all(const AdamRule& rule, const StepState& step, const FlatTensors& tensors) {
    for_blocks(tensors, [&](std::size_t first, const float* gradient, std::size_t count) {
        descend(rule, step, tensors.master + first, gradient, tensors.moments[0] + first,
                tensors.moments[1] + first, count);
    });
}

void scale_tensor(const TensorView& values, double factor) {
    if (values.dtype == DType::float64) {
        multiply(static_cast<double*>(values.data), values.count, factor);
        return;
    }
    if (values.dtype == DType::float32) {
        multiply(static_cast<float*>(values.data), values.count, static_cast<float>(factor));
        return;
    }
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    std::array<float, kBlock> widened;
    for (std::size_t first = 0; first < values.count; first += kBlock) {
        const std::size_t count = std::min(kBlock, values.count - first);
        void* const at = values.part(first, count).data;
        widen(values.dtype, at, widened.data(), count);
        multiply(widened.data(), count, static_cast<float>(factor));
        narrow(values.dtype, widened.data(), at, count);
    }
}

/// `sums` has a place for each chunk.
void sum_squares_of(const ConstTensorView& values, std::span<double> sums) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    std::array<float, kSquaresLanes> widened;
    const auto* const bytes = static_cast<const std::byte*>(values.data);
    for (std::size_t chunk = 0; chunk < sums.size(); ++chunk) {
        std::array<double, kSquaresLanes> lanes{};
        const std::size_t end = std::min(values.count, (chunk + 1) * kSquaresChunk);
        for (std::size_t first = chunk * kSquaresChunk; first < end; first += kSquaresLanes) {
            const std::size_t count = std::min(kSquaresLanes, end - first);
            const std::byte* const at = bytes + first * item_bytes(values.dtype);
            if (values.dtype == DType::float64) {
                add_squares(reinterpret_cast<const double*>(at), count, lanes.data());
            } else if (values.dtype == DType::float32) {
                add_squares(reinterpret_cast<const float*>(at), count, lanes.data());
            } else {
                widen(values.dtype, at, widened.data(), count);
                add_squares(widened.data(), count, lanes.data());
            }
        }
        for (std::size_t width = kSquaresLanes / 2; width > 0; width /= 2) {
            for (std::size_t lane = 0; lane < width; ++lane) {
                lanes[lane] += lanes[lane + width];
            }
        }
        sums[chunk] = lanes[0];
    }
}

class CpuKernels final : public Kernels {
   public:
    int update_scale(ScalerState* state, const ScalerRule& rule, void* /*stream*/) const override {
        optim::update_scale(*state, rule);
        return 0;
    }
    int report_overflow(ScalerState* state, void* /*stream*/) const override {
        state->overflow = 1.0F;
        return 0;
    }
    int check(std::span<const ConstTensorView> tensors, ScalerState* state,
              void* stream) const override {
        const bool finite = std::ranges::all_of(tensors, [](const ConstTensorView& tensor) {
            return all_finite(tensor.dtype, tensor.data, tensor.count);
        });
        return finite ? 0 : report_overflow(state, stream);
    }
    int unscale(std::span<const TensorView> tensors, ScalerState* state,
                void* stream) const override {
        for (const TensorView& tensor : tensors) {  // One by one: it may still be in a cache.
            const ConstTensorView checked = tensor;
            static_cast<void>(check({&checked, 1}, state, stream));
            scale_tensor(tensor, static_cast<double>(1.0F / state->scale));
        }
        return 0;
    }
    int sum_squares(std::span<const TensorView> tensors, double* sums,
                    void* /*stream*/) const override {
        for (const TensorView& tensor : tensors) {
            const std::size_t chunks = (tensor.count + kSquaresChunk - 1) / kSquaresChunk;
            sum_squares_of(tensor, {sums, chunks});
            sums += chunks;
        }
        return 0;
    }
    int scale(std::span<const TensorView> tensors, double factor, void* /*stream*/) const override {
        for (const TensorView& tensor : tensors) {
            scale_tensor(tensor, factor);
        }
        return 0;
    }
    int set_learning_rate(StepState* step, double learning_rate, void* /*stream*/) const override {
        step->learning_rate = learning_rate;
        return 0;
    }
    int step(StepState* step, const ScalerState* scaler, bool divide, const AnyRule& rule,
             std::span<const FlatTensors> tensors, void* /*stream*/) const override {
        const auto carry_out = [&](const auto& known) {
            begin_step(*step, scaler, divide, known);
            for (const FlatTensors& each : tensors) {
                if (step->skip == 0) {
                    update_all(known, *step, each);
                }
            }
        };
        std::visit(carry_out, rule);
        return 0;
    }
    int write_shadows(std::span<const FlatTensors> tensors, void* /*stream*/) const override {
        for (const FlatTensors& each : tensors) {
            if (each.shadow != nullptr) {
                narrow(each.shadow_dtype, each.master, each.shadow, each.count);
            }
        }
        return 0;
    }
};

}  // namespace

const Kernels& cpu_kernels() {
    static const CpuKernels kernels;
    return kernels;
}

}  // namespace regroup::optim
