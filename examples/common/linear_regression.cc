// SPDX-License-Identifier: Apache-2.0
#include "linear_regression.h"

#include <algorithm>
#include <random>

namespace example {

Dataset::Dataset(std::size_t sample_count, std::size_t feature_count, std::uint64_t seed)
    : feature_count_(feature_count), inputs_(sample_count * feature_count), targets_(sample_count) {
    std::mt19937_64 random(seed);
    // No distribution of the standard library: those differ between platforms.
    const auto unit = [&] {  // [-1, 1)
        return static_cast<float>(random() >> 40U) * 0x1.0p-23F - 1.0F;
    };
    std::vector<float> weights(feature_count);
    for (float& weight : weights) {
        weight = unit();
    }
    for (std::size_t i = 0; i < sample_count; ++i) {
        float target = 0.5F + 0.1F * unit();
        for (std::size_t j = 0; j < feature_count; ++j) {
            inputs_[i * feature_count + j] = unit();
            target += weights[j] * inputs_[i * feature_count + j];
        }
        targets_[i] = target;
    }
}

std::vector<regroup::Parameter> LinearRegression::parameters() {
    const std::size_t weight_count = values_.size() - 1;
    const regroup::TensorView values = values_.view();
    const regroup::TensorView gradients = gradients_.view();
    return {{values.part(0, weight_count), gradients.part(0, weight_count)},
            {values.part(weight_count, 1), gradients.part(weight_count, 1)}};
}

float LinearRegression::predict(std::span<const float> input) const {
    const std::span<const float> values = values_.host();
    float result = values.back();
    for (std::size_t j = 0; j < input.size(); ++j) {
        result += values[j] * input[j];
    }
    return result;
}

double LinearRegression::squared_error(const Dataset& dataset, std::size_t sample) const {
    const double error = double{predict(dataset.input(sample))} - dataset.target(sample);
    return error * error;
}

double LinearRegression::forward_backward(const Dataset& dataset,
                                          std::span<const std::uint64_t> samples, float weight) {
    const std::span<float> gradients = gradients_.host();
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    double loss = 0.0;
    for (const std::uint64_t sample : samples) {
        const std::span<const float> input = dataset.input(sample);
        const float error = predict(input) - dataset.target(sample);
        loss += double{error} * error;
        for (std::size_t j = 0; j < input.size(); ++j) {
            gradients[j] += 2.0F * weight * error * input[j];
        }
        gradients.back() += 2.0F * weight * error;
    }
    return loss;
}

void LinearRegression::apply_gradients(double learning_rate) {
    for (std::size_t j = 0; j < values_.size(); ++j) {
        values()[j] -= static_cast<float>(learning_rate) * gradients()[j];
    }
}

double LinearRegression::loss(const Dataset& dataset) const {
    double sum = 0.0;
    for (std::size_t sample = 0; sample < dataset.count(); ++sample) {
        sum += squared_error(dataset, sample);
    }
    return sum / static_cast<double>(dataset.count());
}

}  // namespace example
