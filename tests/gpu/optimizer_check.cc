// SPDX-License-Identifier: Apache-2.0
//
// Compares the kernels of optimizers and loss scaling on GPU 0 with the CPU loops, bit for bit.
#include <regroup/clip_grad_norm.h>
#include <regroup/cuda.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>
#include <regroup/low_precision.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tests/gpu/optimizer_memory.h"
#include "tests/gpu/ranks.h"
#include "worker_sdk/src/cuda/kernels.h"
#include "worker_sdk/src/ddp/convert.h"

namespace regroup::testing {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

void require(bool holds, const std::string& what) {
    if (!holds) {
        throw Error(Errc::system, "wrong: " + what);
    }
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed, float range) {
    std::mt19937_64 random(seed);
    std::vector<float> values(count);
    for (float& value : values) {
        value = range * (static_cast<float>(random() >> 40U) * 0x1.0p-23F - 1.0F);
    }
    return values;
}

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
    std::vector<T> result;
    for (const float value : values) {
        result.push_back(static_cast<T>(value));
    }
    return result;
}

template <class T>
bool same_bits(const std::vector<T>& one, const std::vector<T>& other) {
    return one.size() == other.size() &&
           std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0;
}

using Rule = std::variant<SgdOptions, AdamOptions>;

const std::vector<Rule>& rules() {
    static const std::vector<Rule> all{
        SgdOptions{.learning_rate = 0.1, .weight_decay = 0.01},
        SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.5},
        SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
        AdamOptions{.learning_rate = 0.01, .weight_decay = 0.1},
        AdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true}};
    return all;
}

FusedOptimizer make(const OptimizerTensors& tensors, const Rule& rule) {
    return std::visit([&](const auto& known) { return FusedOptimizer({tensors}, known); }, rule);
}

std::vector<float> moments_of(const FusedOptimizer& optimizer) {
    Checkpoint checkpoint;
    optimizer.save(checkpoint);
    std::vector<float> all;
    for (std::size_t i = 1; i < optimizer.state().size(); ++i) {
        std::vector<float> values(optimizer.state()[i].count);
        checkpoint.read_tensor("optimizer.moment" + std::to_string(i), std::span(values));
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

struct Case {
    std::size_t count;
    std::size_t shift;  // elements by which every buffer misses its alignment
};
constexpr std::array<Case, 4> kCases{{{1, 0}, {1003, 0}, {1003, 1}, {200'001, 0}}};

template <class Gradient, class Shadow>
void expect_same_as_cpu() {
    for (const Rule& rule : rules()) {
        for (const auto& [count, shift] : kCases) {
            std::vector<float> master = random_values(count, 1, 1.0F);
            std::vector<Gradient> gradient(count);
            std::vector<Shadow> shadow(count);
            OnGpu<float> gpu_master(master, shift);
            OnGpu<Gradient> gpu_gradient(gradient, shift);
            OnGpu<Shadow> gpu_shadow(shadow, shift);
            GradScaler scaler({.init_scale = 1000.0});  // The reciprocal of 1000 is rounded.
            GradScaler gpu_scaler({.init_scale = 1000.0}, kGpu);
            FusedOptimizer optimizer = make({.master = std::span(master),
                                             .gradient = std::span(gradient),
                                             .shadow = std::span(shadow)},
                                            rule);
            FusedOptimizer gpu_optimizer = make({.master = gpu_master.view(),
                                                 .gradient = gpu_gradient.view(),
                                                 .shadow = gpu_shadow.view()},
                                                rule);
            for (std::uint64_t step = 0; step < 4; ++step) {
                std::ranges::copy(
                    rounded<Gradient>(random_values(count, 10 + step, 500.0F)),
                    gradient.begin());  // Written in place: the optimizer has its address.
                if (step == 2) {
                    gradient[count / 2] = Gradient(std::numeric_limits<float>::infinity());
                }
                gpu_gradient.write(gradient);
                scaler.check(std::span(gradient));
                gpu_scaler.check(gpu_gradient.view());
                require(gpu_scaler.overflowed() == (step == 2), "overflow");
                optimizer.step(scaler);
                gpu_optimizer.step(gpu_scaler);
                scaler.update();
                gpu_scaler.update();
            }
            require(same_bits(gpu_master.read(), master), "masters");
            require(same_bits(gpu_shadow.read(), shadow), "shadows");
            require(same_bits(moments_of(gpu_optimizer), moments_of(optimizer)), "moments");
            require(gpu_optimizer.step_count() == 3, "count of steps");
            require(gpu_scaler.scale() == 500.0, "scale");
            require(gpu_scaler.skipped_steps() == 1, "skipped steps");
        }
    }
}

void steps_are_those_of_the_cpu_for_gradients_and_shadows_of_every_dtype() {
    expect_same_as_cpu<float, float16>();
    expect_same_as_cpu<float, bfloat16>();
    expect_same_as_cpu<float16, float16>();
    expect_same_as_cpu<float16, bfloat16>();
    expect_same_as_cpu<bfloat16, float16>();
    expect_same_as_cpu<bfloat16, bfloat16>();
}

void steps_without_shadow_and_scaler_are_those_of_the_cpu() {
    for (const Rule& rule : rules()) {
        std::vector<float> master = random_values(5001, 1, 1.0F);
        const std::vector<float> gradient = random_values(5001, 2, 1.0F);
        const OnGpu<float> gpu_master(master);
        const OnGpu<float> gpu_gradient(gradient);
        FusedOptimizer optimizer =
            make({.master = std::span(master), .gradient = std::span(gradient)}, rule);
        FusedOptimizer gpu_optimizer =
            make({.master = gpu_master.view(), .gradient = gpu_gradient.view()}, rule);
        for (int step = 0; step < 3; ++step) {
            optimizer.step();
            gpu_optimizer.step();
        }
        require(same_bits(gpu_master.read(), master), "masters");
    }
}

// More elements than any GPU has threads.
void step_over_a_large_buffer_is_that_of_the_cpu() {
    constexpr std::size_t kCount = 12'000'003;
    std::vector<float> master = random_values(kCount, 1, 1.0F);
    const std::vector<bfloat16> gradient = rounded<bfloat16>(random_values(kCount, 2, 1.0F));
    const OnGpu<float> gpu_master(master);
    const OnGpu<bfloat16> gpu_gradient(gradient);
    FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(gradient)}},
                             AdamOptions{});
    FusedOptimizer gpu_optimizer({{.master = gpu_master.view(), .gradient = gpu_gradient.view()}},
                                 AdamOptions{});
    optimizer.step();
    gpu_optimizer.step();
    require(same_bits(gpu_master.read(), master), "masters");
}

/// Tensors of many sizes, aligned and not, more than one launch takes.
struct ManyTensors {
    static constexpr std::size_t kTensors = 700;

    ManyTensors() {
        for (std::size_t i = 0; i < kTensors; ++i) {
            const std::size_t count = i % 50 == 0 ? 30'000 + i : i * 7 % 2100;
            master.push_back(random_values(count, i, 1.0F));
            gradient.push_back(random_values(count, 1000 + i, 3.0F));
            low.push_back(rounded<bfloat16>(gradient.back()));
            half_shadow.emplace_back(count);
            brain_shadow.emplace_back(count);
            gpu_master.push_back(std::make_unique<OnGpu<float>>(master.back(), i % 3));
            gpu_gradient.push_back(std::make_unique<OnGpu<float>>(gradient.back(), i % 5));
            gpu_low.push_back(std::make_unique<OnGpu<bfloat16>>(low.back(), i % 7));
            gpu_half_shadow.push_back(std::make_unique<OnGpu<float16>>(count, i % 3));
            gpu_brain_shadow.push_back(std::make_unique<OnGpu<bfloat16>>(count, i % 5));
        }
    }
    /// Every third tensor has gradients of low precision. Every fourth has no shadow.
    [[nodiscard]] std::vector<OptimizerTensors> tensors(bool on_gpu) {
        std::vector<OptimizerTensors> all;
        for (std::size_t i = 0; i < kTensors; ++i) {
            OptimizerTensors& each = all.emplace_back();
            each.master = on_gpu ? gpu_master[i]->view() : TensorView(std::span(master[i]));
            if (i % 3 == 0) {
                each.gradient = on_gpu ? gpu_low[i]->view() : TensorView(std::span(low[i]));
            } else {
                each.gradient =
                    on_gpu ? gpu_gradient[i]->view() : TensorView(std::span(gradient[i]));
            }
            if (i % 4 == 1) {
                each.shadow =
                    on_gpu ? gpu_half_shadow[i]->view() : TensorView(std::span(half_shadow[i]));
            } else if (i % 4 > 1) {
                each.shadow =
                    on_gpu ? gpu_brain_shadow[i]->view() : TensorView(std::span(brain_shadow[i]));
            }
        }
        return all;
    }
    void require_same_shadows(const std::string& what) const {
        for (std::size_t i = 0; i < kTensors; ++i) {
            const bool same = i % 4 == 0 ? true
                              : i % 4 == 1
                                  ? same_bits(gpu_half_shadow[i]->read(), half_shadow[i])
                                  : same_bits(gpu_brain_shadow[i]->read(), brain_shadow[i]);
            require(same, what + " of tensor " + std::to_string(i));
        }
    }
    [[nodiscard]] std::vector<TensorView> gradients(bool on_gpu) {
        std::vector<TensorView> all;
        for (std::size_t i = 0; i < kTensors; ++i) {
            all.push_back(on_gpu ? gpu_gradient[i]->view() : TensorView(std::span(gradient[i])));
        }
        return all;
    }
    void require_same_gradients(const std::string& what) const {
        for (std::size_t i = 0; i < kTensors; ++i) {
            require(same_bits(gpu_gradient[i]->read(), gradient[i]),
                    what + " of tensor " + std::to_string(i));
        }
    }

    std::vector<std::vector<float>> master{};
    std::vector<std::vector<float>> gradient{};
    std::vector<std::vector<bfloat16>> low{};
    std::vector<std::vector<float16>> half_shadow{};
    std::vector<std::vector<bfloat16>> brain_shadow{};
    std::vector<std::unique_ptr<OnGpu<float>>> gpu_master{};
    std::vector<std::unique_ptr<OnGpu<float>>> gpu_gradient{};
    std::vector<std::unique_ptr<OnGpu<bfloat16>>> gpu_low{};
    std::vector<std::unique_ptr<OnGpu<float16>>> gpu_half_shadow{};
    std::vector<std::unique_ptr<OnGpu<bfloat16>>> gpu_brain_shadow{};
};

void many_tensors_are_those_of_the_cpu() {
    ManyTensors many;
    FusedOptimizer optimizer(many.tensors(false), AdamOptions{});
    FusedOptimizer gpu_optimizer(many.tensors(true), AdamOptions{});
    optimizer.write_shadows();
    gpu_optimizer.write_shadows();
    many.require_same_shadows("first shadows");
    for (int step = 0; step < 3; ++step) {
        optimizer.step();
        gpu_optimizer.step();
    }
    for (std::size_t i = 0; i < ManyTensors::kTensors; ++i) {
        require(same_bits(many.gpu_master[i]->read(), many.master[i]),
                "masters of tensor " + std::to_string(i));
    }
    many.require_same_shadows("shadows");
    GradScaler scaler({.init_scale = 1000.0});
    GradScaler gpu_scaler({.init_scale = 1000.0}, kGpu);
    scaler.unscale_all(many.gradients(false));
    gpu_scaler.unscale_all(many.gradients(true));
    many.require_same_gradients("unscaled gradients");
    require(!gpu_scaler.overflowed(), "overflow");
    const double norm = clip_grad_norm(many.gradients(false), 0.001);
    require(clip_grad_norm(many.gradients(true), 0.001) == norm, "the norm");
    many.require_same_gradients("clipped gradients");
    std::vector<float> values = many.gradient.back();
    values.back() = std::numeric_limits<float>::quiet_NaN();
    many.gpu_gradient.back()->write(values);
    const std::vector<TensorView> views = many.gradients(true);
    gpu_scaler.check_all(std::vector<ConstTensorView>(views.begin(), views.end()));
    require(gpu_scaler.overflowed(), "an overflow missed in the last tensor");
}

template <class T>
void expect_overflow_found_everywhere() {
    for (const auto& [count, shift] : kCases) {
        const std::vector<T> good(count, T(60000.0F));
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            std::vector<T> values = good;
            OnGpu<T> gpu(values, shift);
            GradScaler scaler({}, kGpu);
            scaler.check(gpu.view());
            require(!scaler.overflowed(), "an overflow where there is none");
            values[at] = T(at % 2 == 0 ? -std::numeric_limits<float>::infinity()
                                       : std::numeric_limits<float>::quiet_NaN());
            gpu.write(values);
            scaler.check(gpu.view());
            require(scaler.overflowed(),
                    "an overflow missed: " + std::to_string(at) + " of " + std::to_string(count));
        }
    }
}

void finds_inf_and_nan_wherever_they_are() {
    expect_overflow_found_everywhere<float>();
    expect_overflow_found_everywhere<float16>();
    expect_overflow_found_everywhere<bfloat16>();
}

void unscale_is_that_of_the_cpu() {
    for (const auto& [count, shift] : kCases) {
        std::vector<float> values = random_values(count, 1, 1e6F);
        const OnGpu<float> gpu(values, shift);
        GradScaler scaler({.init_scale = 1000.0});
        GradScaler gpu_scaler({.init_scale = 1000.0}, kGpu);
        scaler.unscale(std::span(values));
        gpu_scaler.unscale(gpu.view());
        require(same_bits(gpu.read(), values), "unscaled gradients");
        require(!gpu_scaler.overflowed(), "overflow");
    }
}

template <class T>
void expect_clipping_of_the_cpu() {
    for (const auto& [count, shift] : kCases) {
        std::vector<T> values;
        for (const float value : random_values(count, 1, 100.0F)) {
            values.push_back(static_cast<T>(value));
        }
        const OnGpu<T> gpu(values, shift);
        const double norm = clip_grad_norm({std::span(values)}, 0.7);
        require(clip_grad_norm({gpu.view()}, 0.7) == norm, "the norm");
        require(same_bits(gpu.read(), values), "clipped gradients");
    }
}

void clipping_is_that_of_the_cpu() {
    expect_clipping_of_the_cpu<float>();
    expect_clipping_of_the_cpu<double>();
    expect_clipping_of_the_cpu<float16>();
    expect_clipping_of_the_cpu<bfloat16>();
}

void cast(ConstTensorView from, TensorView to, float factor) {
    require_cuda(static_cast<cudaError_t>(cuda::launch_cast(from.data, from.dtype, to.data,
                                                            to.dtype, from.count, factor, nullptr)),
                 "launch_cast");
}

/// Narrowed with a factor, and widened again.
template <class Wide, class Low>
void expect_casts_of_the_cpu() {
    for (const auto& [count, shift] : kCases) {
        std::vector<Wide> values;
        for (const float value : random_values(count, 1, 70000.0F)) {
            values.push_back(static_cast<Wide>(value) * static_cast<Wide>(1.0 + 0x1p-30));
        }
        const OnGpu<Wide> wide(values, shift);
        const OnGpu<Low> low(count, shift);
        const OnGpu<Wide> back(count, shift);
        cast(wide.view(), low.view(), 0.97F);
        cast(low.view(), back.view(), 3.0F);
        std::vector<Low> expected(count);
        std::vector<Wide> expected_back(count);
        ddp::convert_values(std::span<const Wide>(values), std::span<Low>(expected), 0.97F, {});
        ddp::convert_values(std::span<const Low>(expected), std::span<Wide>(expected_back), 3.0F,
                            {});
        require(same_bits(low.read(), expected), "narrowed");
        require(same_bits(back.read(), expected_back), "widened");
    }
}

void casts_are_those_of_the_cpu() {
    expect_casts_of_the_cpu<float, float16>();
    expect_casts_of_the_cpu<float, bfloat16>();
    expect_casts_of_the_cpu<double, float16>();
    expect_casts_of_the_cpu<double, bfloat16>();
}

// A captured step replays with the present state and learning rate, and skips itself on overflow.
void step_is_captured_into_a_graph_once() {
    const AdamOptions options{.learning_rate = 0.01};
    std::vector<float> master = random_values(1000, 1, 1.0F);
    std::vector<float> gradient = random_values(1000, 2, 1.0F);
    const OnGpu<float> gpu_master(master);
    OnGpu<float> gpu_gradient(gradient);
    GradScaler scaler({.growth_interval = 2});
    GradScaler gpu_scaler({.growth_interval = 2}, kGpu);
    FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(gradient)}},
                             options);
    FusedOptimizer gpu_optimizer({{.master = gpu_master.view(), .gradient = gpu_gradient.view()}},
                                 options);

    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    require_cuda(::cudaStreamCreate(&stream), "cudaStreamCreate");
    require_cuda(::cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    gpu_scaler.check(gpu_gradient.view(), {stream});
    gpu_optimizer.step(gpu_scaler, {stream});
    gpu_scaler.update({stream});
    require_cuda(::cudaStreamEndCapture(stream, &graph), "capture");
    require_cuda(::cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    for (int step = 0; step < 6; ++step) {
        gradient[5] = step == 3 ? std::numeric_limits<float>::infinity() : 1.0F;
        gpu_gradient.write(gradient);
        if (step == 4) {
            optimizer.set_learning_rate(0.05);
            gpu_optimizer.set_learning_rate(0.05, {stream});
        }
        scaler.check(std::span(gradient));
        optimizer.step(scaler);
        scaler.update();
        require_cuda(::cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
        require_cuda(::cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    require(same_bits(gpu_master.read(), master), "masters");
    require(gpu_optimizer.step_count() == 5, "count of steps");
    require(gpu_scaler.scale() == scaler.scale(), "scale");
    ::cudaGraphExecDestroy(replay);
    ::cudaGraphDestroy(graph);
    ::cudaStreamDestroy(stream);
}

void checkpoint_of_a_gpu_goes_on_on_a_cpu() {
    const AdamOptions options{.learning_rate = 0.01};
    std::vector<float> master = random_values(1000, 1, 1.0F);
    const std::vector<float> gradient = random_values(1000, 2, 1.0F);
    const OnGpu<float> gpu_master(master);
    const OnGpu<float> gpu_gradient(gradient);
    FusedOptimizer gpu_optimizer({{.master = gpu_master.view(), .gradient = gpu_gradient.view()}},
                                 options);
    gpu_optimizer.step();
    Checkpoint checkpoint;
    gpu_optimizer.save(checkpoint);
    master = gpu_master.read();
    FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(gradient)}},
                             options);
    optimizer.load(checkpoint);
    optimizer.step();
    gpu_optimizer.step();
    require(same_bits(gpu_master.read(), master), "masters");
}

struct Check {
    const char* name;
    void (*run)();
};
constexpr std::array kChecks{
    Check{"steps are those of the cpu for gradients and shadows of every dtype",
          steps_are_those_of_the_cpu_for_gradients_and_shadows_of_every_dtype},
    Check{"steps without shadow and scaler are those of the cpu",
          steps_without_shadow_and_scaler_are_those_of_the_cpu},
    Check{"step over a large buffer is that of the cpu",
          step_over_a_large_buffer_is_that_of_the_cpu},
    Check{"many tensors are those of the cpu", many_tensors_are_those_of_the_cpu},
    Check{"finds inf and nan wherever they are", finds_inf_and_nan_wherever_they_are},
    Check{"unscale is that of the cpu", unscale_is_that_of_the_cpu},
    Check{"clipping is that of the cpu", clipping_is_that_of_the_cpu},
    Check{"casts are those of the cpu", casts_are_those_of_the_cpu},
    Check{"step is captured into a graph once", step_is_captured_into_a_graph_once},
    Check{"checkpoint of a gpu goes on on a cpu", checkpoint_of_a_gpu_goes_on_on_a_cpu},
};

int run_checks() {
    const cuda::Availability found = cuda::availability();
    if (found.device_count == 0) {
        std::printf("optimizer_check: skipped: %s\n", found.problem.c_str());
        return gpu::kSkipped;
    }
    int failures = 0;
    for (const Check& check : kChecks) {
        std::string problem;
        try {
            check.run();
        } catch (const Error& error) {
            problem = error.what();
            ++failures;
        }
        std::printf("  %-14s %-4s %s%s%s\n", "optimizer", problem.empty() ? "pass" : "FAIL",
                    check.name, problem.empty() ? "" : ": ", problem.c_str());
        std::fflush(stdout);
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace regroup::testing

int main() {
    return regroup::testing::run_checks();
}
