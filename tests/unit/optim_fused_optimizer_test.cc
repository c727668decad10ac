// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/fused_optimizer.h>
#include <regroup/low_precision.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/optim_support.h"

namespace regroup {
namespace {

using testing::complaint;
using testing::random_values;

// Three steps by torch.optim from kStart with kGradients, the same in releases 1.13 and 2.14:
//     p = torch.tensor(start, requires_grad=True); optimizer = torch.optim.SGD([p], lr=0.1, ...)
//     for g in gradients: p.grad = torch.tensor(g); optimizer.step()
constexpr std::array<float, 5> kStart{1.0F, -0.5F, 0.25F, 2.0F, -1.5F};
constexpr std::array<std::array<float, 5>, 3> kGradients{
    {{0.5F, -0.25F, 0.125F, 1.0F, -2.0F},
     {-0.375F, 0.75F, 0.0625F, -0.5F, 0.25F},
     {0.1875F, 0.3125F, -1.25F, 0.625F, 1.5F}}};

struct TorchCase {
    const char* name;
    std::variant<SgdOptions, AdamOptions> options;
    std::array<float, 5> result;
};

const std::vector<TorchCase>& torch_cases() {
    static const std::vector<TorchCase> cases{
        {"SGD(lr=0.1)",
         SgdOptions{.learning_rate = 0.1},
         {0.96875F, -0.581250012F, 0.356250018F, 1.88749993F, -1.4749999F}},
        {"SGD(lr=0.1, weight_decay=0.05)",
         SgdOptions{.learning_rate = 0.1, .weight_decay = 0.05},
         {0.954136074F, -0.573661864F, 0.352674633F, 1.85839725F, -1.45448232F}},
        {"SGD(lr=0.1, momentum=0.9)",
         SgdOptions{.learning_rate = 0.1, .momentum = 0.9},
         {0.916999996F, -0.605999947F, 0.329250008F, 1.7615F, -1.15550005F}},
        {"SGD(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.05)",
         SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.05},
         {0.870431483F, -0.508895457F, 0.267627418F, 1.70464432F, -1.02749801F}},
        {"SGD(lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True)",
         SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
         {0.856040895F, -0.656630099F, 0.41835475F, 1.59728312F, -1.11491525F}},
        {"Adam(lr=0.01)",
         AdamOptions{.learning_rate = 0.01},
         {0.986608446F, -0.500843704F, 0.236226931F, 1.98242068F, -1.48454177F}},
        {"Adam(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)",
         AdamOptions{.learning_rate = 0.01,
                     .beta1 = 0.8,
                     .beta2 = 0.95,
                     .epsilon = 1e-6,
                     .weight_decay = 0.1},
         {0.983058512F, -0.500275314F, 0.236505657F, 1.97925878F, -1.48417258F}},
        {"AdamW(lr=0.01, weight_decay=0.1)",
         AdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true},
         {0.983632386F, -0.499360293F, 0.235506997F, 1.97644949F, -1.48007202F}}};
    return cases;
}

FusedOptimizer make(std::vector<OptimizerTensors> tensors,
                    const std::variant<SgdOptions, AdamOptions>& options) {
    return std::visit([&](const auto& known) { return FusedOptimizer(std::move(tensors), known); },
                      options);
}

TEST(FusedOptimizer, StepsEqualThoseOfTorch) {
    for (const TorchCase& each : torch_cases()) {
        std::vector<float> master(kStart.begin(), kStart.end());
        std::vector<float> gradient(kStart.size());
        FusedOptimizer optimizer =
            make({{.master = std::span(master), .gradient = std::span(gradient)}}, each.options);
        for (const auto& values : kGradients) {
            gradient.assign(values.begin(), values.end());
            optimizer.step();
        }
        for (std::size_t i = 0; i < master.size(); ++i) {
            EXPECT_NEAR(master[i], each.result[i], 2e-7F * std::abs(each.result[i]))
                << each.name << ", element " << i;
        }
        EXPECT_EQ(optimizer.step_count(), 3);
    }
}

// AdamW in double precision, on one element.
struct ReferenceAdam {
    AdamOptions options;
    double first = 0.0;
    double second = 0.0;
    int steps = 0;

    double step(double parameter, double gradient) {
        ++steps;
        parameter *= 1.0 - options.learning_rate * options.weight_decay;
        first = options.beta1 * first + (1.0 - options.beta1) * gradient;
        second = options.beta2 * second + (1.0 - options.beta2) * gradient * gradient;
        const double mean = first / (1.0 - std::pow(options.beta1, steps));
        const double square = second / (1.0 - std::pow(options.beta2, steps));
        return parameter - options.learning_rate * mean / (std::sqrt(square) + options.epsilon);
    }
};

// Counts on both sides of the blocks in which the CPU works, gradients of every dtype, scaled; two
// tensors at once.
template <class Gradient>
void expect_adam_follows_double_precision() {
    const AdamOptions options{
        .learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true};
    constexpr std::array<std::size_t, 2> kCounts{1, 3001};
    std::array<std::vector<float>, 2> masters;
    std::array<std::vector<Gradient>, 2> gradients;
    std::array<std::vector<bfloat16>, 2> shadows;
    std::array<std::vector<double>, 2> expected;
    std::array<std::vector<ReferenceAdam>, 2> references;
    std::vector<OptimizerTensors> tensors;
    for (std::size_t t = 0; t < 2; ++t) {
        masters[t] = random_values(kCounts[t], t, 1.0F);
        gradients[t].resize(kCounts[t]);
        shadows[t].resize(kCounts[t]);
        expected[t].assign(masters[t].begin(), masters[t].end());
        references[t].assign(kCounts[t], ReferenceAdam{options});
        tensors.push_back({.master = std::span(masters[t]),
                           .gradient = std::span(gradients[t]),
                           .shadow = std::span(shadows[t])});
    }
    GradScaler scaler({.init_scale = 1024.0});
    FusedOptimizer optimizer(tensors, options);
    for (std::uint64_t step = 0; step < 5; ++step) {
        for (std::size_t t = 0; t < 2; ++t) {
            const std::vector<float> scaled = random_values(kCounts[t], 10 + step, 1024.0F);
            for (std::size_t i = 0; i < kCounts[t]; ++i) {
                gradients[t][i] = Gradient(scaled[i]);
                const auto seen = static_cast<double>(static_cast<float>(gradients[t][i]));
                expected[t][i] = references[t][i].step(expected[t][i], seen / 1024.0);
            }
        }
        optimizer.step(scaler);
    }
    for (std::size_t t = 0; t < 2; ++t) {
        for (std::size_t i = 0; i < kCounts[t]; ++i) {
            ASSERT_NEAR(static_cast<double>(masters[t][i]), expected[t][i], 1e-6) << t << ":" << i;
            ASSERT_EQ(shadows[t][i], bfloat16(masters[t][i])) << t << ":" << i;
        }
    }
}

TEST(FusedOptimizer, StepsFollowDoublePrecisionForGradientsOfEveryDtype) {
    expect_adam_follows_double_precision<float>();
    expect_adam_follows_double_precision<float16>();
    expect_adam_follows_double_precision<bfloat16>();
}

TEST(FusedOptimizer, ShadowIsTheRoundingOfTheMaster) {
    std::vector<float> master = random_values(2500, 1, 70000.0F);  // beyond float16's range too
    const std::vector<float> gradient = random_values(2500, 2, 1.0F);
    std::vector<float16> shadow(2500);
    FusedOptimizer optimizer({{.master = std::span(master),
                               .gradient = std::span(gradient),
                               .shadow = std::span(shadow)}},
                             SgdOptions{.learning_rate = 0.5});
    const auto expect_rounded = [&] {
        for (std::size_t i = 0; i < master.size(); ++i) {
            ASSERT_EQ(shadow[i], float16(master[i])) << i;
        }
    };
    optimizer.write_shadows();
    expect_rounded();
    optimizer.step();
    expect_rounded();
}

std::string bytes_of(const TensorView& view) {
    return {static_cast<const char*>(view.data), view.bytes()};
}

TEST(FusedOptimizer, OverflowChangesNothing) {
    for (const TorchCase& each : torch_cases()) {
        std::vector<float> master(kStart.begin(), kStart.end());
        std::vector<float> gradient(kGradients[0].begin(), kGradients[0].end());
        std::vector<bfloat16> shadow(master.size());
        GradScaler scaler({.init_scale = 2.0});
        FusedOptimizer optimizer = make({{.master = std::span(master),
                                          .gradient = std::span(gradient),
                                          .shadow = std::span(shadow)}},
                                        each.options);
        optimizer.step(scaler);
        std::vector<TensorView> watched = optimizer.state();
        watched.insert(watched.end(), {std::span(master), std::span(shadow)});
        std::vector<std::string> before;
        for (const TensorView& view : watched) {
            before.push_back(bytes_of(view));
        }
        gradient[3] = std::numeric_limits<float>::quiet_NaN();
        scaler.check(std::span(gradient));
        optimizer.step(scaler);
        for (std::size_t i = 0; i < watched.size(); ++i) {
            EXPECT_EQ(bytes_of(watched[i]), before[i]) << each.name << ", view " << i;
        }
        EXPECT_EQ(optimizer.step_count(), 1);

        scaler.update();
        gradient[3] = 1.0F;
        optimizer.step(scaler);
        EXPECT_EQ(optimizer.step_count(), 2) << each.name;
        EXPECT_NE(bytes_of(std::span(master)), before[before.size() - 2]) << each.name;
    }
}

TEST(FusedOptimizer, UnscaledGradientsAreNotDividedAgain) {
    std::vector<float> master{1.0F};
    std::vector<float> gradient{8.0F};
    GradScaler scaler({.init_scale = 8.0});
    FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(gradient)}},
                             SgdOptions{.learning_rate = 0.5});
    scaler.unscale(std::span(gradient));
    EXPECT_EQ(gradient[0], 1.0F);
    optimizer.step(scaler);
    EXPECT_EQ(master[0], 0.5F);
    scaler.update();
    gradient[0] = 8.0F;
    optimizer.step(scaler);
    EXPECT_EQ(master[0], 0.0F);
}

TEST(FusedOptimizer, ResumedOptimizerIsTheSameToTheBit) {
    const AdamOptions options{.learning_rate = 0.01};
    std::vector<float> master = random_values(37, 1, 1.0F);
    std::vector<float> gradient = random_values(37, 2, 1.0F);
    FusedOptimizer first({{.master = std::span(master), .gradient = std::span(gradient)}}, options);
    first.step();
    first.set_learning_rate(0.02);
    Checkpoint checkpoint;
    first.save(checkpoint, "adam");
    std::vector<float> resumed_master = master;
    FusedOptimizer resumed({{.master = std::span(resumed_master), .gradient = std::span(gradient)}},
                           options);
    resumed.load(checkpoint, "adam");
    EXPECT_EQ(resumed.step_count(), 1);
    EXPECT_EQ(resumed.learning_rate(), 0.02);
    first.step();
    resumed.step();
    EXPECT_THAT(resumed_master, ElementsAreArray(master));

    std::vector<float> wider(53);
    FusedOptimizer other({{.master = std::span(wider), .gradient = std::span(wider)}}, options);
    EXPECT_THROW(other.load(checkpoint, "adam"), Error);
    EXPECT_EQ(other.step_count(), 0);
}

TEST(FusedOptimizer, SetGradientsReplacesTheGradients) {
    std::vector<float> master(3, 1.0F);
    const std::vector<float> before(3, 1.0F);
    const std::vector<bfloat16> after(3, bfloat16(4.0F));
    FusedOptimizer optimizer({{.master = std::span(master), .gradient = std::span(before)}},
                             SgdOptions{.learning_rate = 0.25});
    optimizer.step();
    EXPECT_EQ(master, std::vector<float>(3, 0.75F));
    const std::vector<ConstTensorView> views = {std::span(after)};
    optimizer.set_gradients(views);
    optimizer.step();
    EXPECT_EQ(master, std::vector<float>(3, -0.25F));
    const std::vector<ConstTensorView> short_views = {std::span(after).first(2)};
    EXPECT_EQ(complaint([&] { optimizer.set_gradients(short_views); }),
              "optimizer: of tensors 0, the gradient has 2 elements, but the master 3");
    EXPECT_EQ(complaint([&] { optimizer.set_gradients({}); }),
              "optimizer: it has 1 tensors, but was given 0 gradients");
    optimizer.step();
    EXPECT_EQ(master, std::vector<float>(3, -1.25F));
}

TEST(FusedOptimizer, InvalidArgumentsAreRefused) {
    std::vector<float> five(5);
    std::vector<float> six(6);
    std::vector<double> doubles(5);
    const auto with = [&](const OptimizerTensors& tensors, const auto& options) {
        return complaint([&] { FusedOptimizer({tensors}, options); });
    };
    const OptimizerTensors good{.master = std::span(five), .gradient = std::span(five)};
    EXPECT_THAT(complaint([] { FusedOptimizer({}, SgdOptions{}); }), HasSubstr("no tensors"));
    EXPECT_EQ(with({.master = std::span(five), .gradient = std::span(six)}, SgdOptions{}),
              "optimizer: of tensors 0, the gradient has 6 elements, but the master 5");
    EXPECT_EQ(with({.master = std::span(doubles), .gradient = std::span(five)}, SgdOptions{}),
              "optimizer: of tensors 0, the master must be float32, not float64");
    EXPECT_EQ(
        with({.master = std::span(five), .gradient = std::span(five), .shadow = std::span(doubles)},
             SgdOptions{}),
        "optimizer: of tensors 0, the shadow must be float16 or bfloat16, not float64");
    OptimizerTensors elsewhere = good;
    elsewhere.gradient.device = {DeviceKind::cuda, 1};
    EXPECT_EQ(with(elsewhere, SgdOptions{}),
              "optimizer: of tensors 0, the gradient is on cuda:1, but the first master on cpu");
    OptimizerTensors nowhere = good;
    nowhere.gradient.data = nullptr;
    EXPECT_EQ(with(nowhere, SgdOptions{}), "optimizer: of tensors 0, the gradient has no data");
    EXPECT_THAT(with(good, SgdOptions{.nesterov = true}), HasSubstr("nesterov needs a momentum"));
    EXPECT_THAT(with(good, AdamOptions{.beta1 = 1.0}), HasSubstr("beta1 must be at least 0"));
    EXPECT_THAT(with(good, AdamOptions{.learning_rate = -1.0}), HasSubstr("learning_rate"));
}

}  // namespace
}  // namespace regroup
