// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/byte_lm/model.h"

namespace byte_lm {
namespace {

using ::testing::ElementsAre;

constexpr ModelSizes kSmall{.context = 3, .embedding = 4, .hidden = 5};

Batch windows(const std::string& text) {
    Batch batch;
    for (std::size_t i = 0; i + 3 < text.size(); ++i) {
        batch.push_back(reinterpret_cast<const std::uint8_t*>(text.data()) + i);
    }
    return batch;
}

void ignore(std::size_t /*index*/) {}

// Moving all values a little along the gradient must change the loss by what the gradient promises,
// for each tensor alone.
TEST(ByteLm, GradientsAgreeWithFiniteDifferences) {
    const std::string text = "to be or not to be";
    const Batch batch = windows(text);
    Model model(kSmall, 1);
    model.forward(batch);
    model.backward(batch, 1.0F, ignore);
    for (std::size_t i = 0; i < model.tensors().size(); ++i) {
        Model::Tensor& tensor = model.tensors()[i];
        const Matrix value = tensor.value;
        const auto slope = static_cast<double>(tensor.gradient.norm());
        const Matrix direction = tensor.gradient / tensor.gradient.norm();
        constexpr float kStep = 1e-2F;
        tensor.value = value + kStep * direction;
        const double above = model.forward(batch);
        tensor.value = value - kStep * direction;
        const double below = model.forward(batch);
        tensor.value = value;
        EXPECT_NEAR((above - below) / (2.0 * static_cast<double>(kStep)), slope, 2e-3 * slope)
            << tensor.name;
    }
}

TEST(ByteLm, GradientsBecomeReadyFromTheLastLayerToTheFirst) {
    const std::string text = "abcdef";
    const Batch batch = windows(text);
    Model model(kSmall, 1);
    model.forward(batch);
    std::vector<std::size_t> order;
    model.backward(batch, 1.0F, [&order](std::size_t index) { order.push_back(index); });
    EXPECT_THAT(order, ElementsAre(4, 3, 2, 1, 0));
}

TEST(ByteLm, EmptyShareHasNoLossAndNoGradient) {
    Model model(kSmall, 1);
    EXPECT_EQ(model.forward({}), 0.0);
    model.backward({}, 1.0F, ignore);
    for (const Model::Tensor& tensor : model.tensors()) {
        EXPECT_EQ(tensor.gradient.norm(), 0.0F) << tensor.name;
    }
}

TEST(ByteLm, UntrainedModelGuessesAlmostEvenly) {
    const std::string text = "to be or not to be";
    Model model(kSmall, 1);
    const Batch batch = windows(text);
    EXPECT_NEAR(model.forward(batch) / static_cast<double>(batch.size()), std::log(256.0), 0.3);
}

TEST(ByteLm, ModelLearnsASentenceByHeart) {
    const std::string text = "to be or not to be";
    const Batch batch = windows(text);
    Model model(kSmall, 1);
    const auto weight = 1.0F / static_cast<float>(batch.size());
    for (int step = 0; step < 300; ++step) {
        model.forward(batch);
        model.backward(batch, weight, ignore);
        model.apply_gradients(0.1F);
    }
    EXPECT_LT(model.forward(batch) / static_cast<double>(batch.size()), 0.5);
}

}  // namespace
}  // namespace byte_lm
