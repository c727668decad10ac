// SPDX-License-Identifier: Apache-2.0
// A minimal data set and a minimal model for the examples.
#pragma once

#include <regroup/distributed_data_parallel.h>  // Parameter

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "device_vector.h"

namespace example {

/// Samples of y = w x + b with a little noise, x and w of `feature_count` numbers. The same on
/// every rank and machine.
class Dataset {
   public:
    Dataset(std::size_t sample_count, std::size_t feature_count, std::uint64_t seed = 1)
        : feature_count_(feature_count),
          inputs_(sample_count * feature_count),
          targets_(sample_count) {
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

    [[nodiscard]] std::size_t count() const { return targets_.size(); }
    [[nodiscard]] std::size_t feature_count() const { return feature_count_; }
    [[nodiscard]] std::span<const float> input(std::size_t sample) const {
        return std::span(inputs_).subspan(sample * feature_count_, feature_count_);
    }
    [[nodiscard]] float target(std::size_t sample) const { return targets_[sample]; }

   private:
    std::size_t feature_count_;
    std::vector<float> inputs_;  // [samples, features]
    std::vector<float> targets_;
};

/// Predicts y from x, trained on the mean squared error. It computes on the host; values and
/// gradients for communication are on `device`.
class LinearRegression {
   public:
    explicit LinearRegression(std::size_t feature_count, const regroup::Device& device = {})
        : values_(feature_count + 1, device), gradients_(feature_count + 1, device) {}

    // The weights, then the bias.
    [[nodiscard]] std::span<float> values() { return values_.host(); }
    [[nodiscard]] std::span<const float> values() const { return values_.host(); }
    [[nodiscard]] std::span<float> gradients() { return gradients_.host(); }
    [[nodiscard]] DeviceVector<float>& device_values() { return values_; }
    [[nodiscard]] DeviceVector<float>& device_gradients() { return gradients_; }

    /// On the device as two tensors, for DistributedDataParallel.
    [[nodiscard]] std::vector<regroup::Parameter> parameters() {
        const std::size_t weight_count = values_.size() - 1;
        const regroup::TensorView values = values_.view();
        const regroup::TensorView gradients = gradients_.view();
        return {{values.part(0, weight_count), gradients.part(0, weight_count)},
                {values.part(weight_count, 1), gradients.part(weight_count, 1)}};
    }

    [[nodiscard]] float predict(std::span<const float> input) const {
        const std::span<const float> values = values_.host();
        float result = values.back();
        for (std::size_t j = 0; j < input.size(); ++j) {
            result += values[j] * input[j];
        }
        return result;
    }

    [[nodiscard]] double squared_error(const Dataset& dataset, std::size_t sample) const {
        const double error = double{predict(dataset.input(sample))} - dataset.target(sample);
        return error * error;
    }

    /// Forward and backward: the gradients become those of `weight` times the sum of the samples'
    /// squared errors, which is returned without the weight.
    double forward_backward(const Dataset& dataset, std::span<const std::uint64_t> samples,
                            float weight) {
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

    /// One step of gradient descent.
    void apply_gradients(double learning_rate) {
        for (std::size_t j = 0; j < values_.size(); ++j) {
            values()[j] -= static_cast<float>(learning_rate) * gradients()[j];
        }
    }

    /// The mean squared error over the whole data set.
    [[nodiscard]] double loss(const Dataset& dataset) const {
        double sum = 0.0;
        for (std::size_t sample = 0; sample < dataset.count(); ++sample) {
            sum += squared_error(dataset, sample);
        }
        return sum / static_cast<double>(dataset.count());
    }

   private:
    DeviceVector<float> values_;
    DeviceVector<float> gradients_;
};

}  // namespace example
