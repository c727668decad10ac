// SPDX-License-Identifier: Apache-2.0
// A minimal data set and a minimal model for the examples.
#pragma once

#include <regroup/distributed_data_parallel.h>  // Parameter

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device_vector.h"

namespace example {

/// Samples of y = w x + b with a little noise, x and w of `feature_count` numbers. The same on
/// every rank and machine.
class Dataset {
   public:
    Dataset(std::size_t sample_count, std::size_t feature_count, std::uint64_t seed = 1);

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
    [[nodiscard]] std::vector<regroup::Parameter> parameters();

    [[nodiscard]] float predict(std::span<const float> input) const;

    [[nodiscard]] double squared_error(const Dataset& dataset, std::size_t sample) const;

    /// Forward and backward: the gradients become those of `weight` times the sum of the samples'
    /// squared errors, which is returned without the weight.
    double forward_backward(const Dataset& dataset, std::span<const std::uint64_t> samples,
                            float weight);

    /// One step of gradient descent.
    void apply_gradients(double learning_rate);

    /// The mean squared error over the whole data set.
    [[nodiscard]] double loss(const Dataset& dataset) const;

   private:
    DeviceVector<float> values_;
    DeviceVector<float> gradients_;
};

}  // namespace example
