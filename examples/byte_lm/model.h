// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>  // Parameter
#include <regroup/tensor_view.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Core>

namespace byte_lm {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline constexpr Eigen::Index kByteCount = 256;

/// Each sample is a position in the text: the model sees `context` bytes from there, and predicts
/// the next one. May be empty: a rank's share of a small global batch.
using Batch = std::vector<const std::uint8_t*>;

struct ModelSizes {
    Eigen::Index context = 8;     ///< C: bytes seen
    Eigen::Index embedding = 16;  ///< E: numbers that stand for a byte
    Eigen::Index hidden = 128;    ///< H: width of the hidden layer
};

/// Predicts the next byte from the C bytes before it:
///
///     bytes [n, C] -> embedding [n, C*E] -> tanh(x W + b) [n, H] -> x W + b, softmax [n, 256]
class Model {
   public:
    /// The tensors, in forward order; `Tensor::name` names each in the checkpoint.
    enum : std::size_t { embedding_table, hidden_weight, hidden_bias, output_weight, output_bias };

    struct Tensor {
        const char* name = "";
        Matrix value;
        Matrix gradient;
        Matrix momentum;
    };

    Model(const ModelSizes& sizes, std::uint64_t seed) : sizes_(sizes) {
        const Eigen::Index features = sizes.context * sizes.embedding;
        std::mt19937_64 random(seed);
        const auto add = [&](std::size_t index, const char* name, Eigen::Index rows,
                             Eigen::Index columns, float scale) {
            const Matrix zero = Matrix::Zero(rows, columns);
            tensors_[index] = {name, zero, zero, zero};
            // No distribution of the standard library: those differ between platforms.
            for (float& value : tensors_[index].value.reshaped()) {
                const auto unit = static_cast<float>(random() >> 40U) * 0x1.0p-24F;  // [0, 1)
                value = scale * (2.0F * unit - 1.0F);
            }
        };
        const auto fan_in = [](Eigen::Index count) { return std::sqrt(3.0F / float(count)); };
        add(embedding_table, "embedding", kByteCount, sizes.embedding, 1.0F);
        add(hidden_weight, "hidden.weight", features, sizes.hidden, fan_in(features));
        add(hidden_bias, "hidden.bias", 1, sizes.hidden, 0.0F);
        add(output_weight, "output.weight", sizes.hidden, kByteCount, 0.3F * fan_in(sizes.hidden));
        add(output_bias, "output.bias", 1, kByteCount, 0.0F);
    }

    /// Returns the sum of the samples' cross-entropies, and keeps the values for `backward`.
    double forward(const Batch& batch) {
        if (batch.empty()) {
            return 0.0;
        }
        const auto count = static_cast<Eigen::Index>(batch.size());
        input_.resize(count, sizes_.context * sizes_.embedding);
        for (Eigen::Index i = 0; i < count; ++i) {
            for (Eigen::Index c = 0; c < sizes_.context; ++c) {
                input_.row(i).segment(c * sizes_.embedding, sizes_.embedding) =
                    value(embedding_table).row(byte_at(batch, i, c));
            }
        }
        hidden_.noalias() = input_ * value(hidden_weight);
        hidden_ = (hidden_.rowwise() + value(hidden_bias).row(0)).array().tanh();
        scores_.noalias() = hidden_ * value(output_weight);
        scores_.rowwise() += value(output_bias).row(0);

        double loss_sum = 0.0;
        for (Eigen::Index i = 0; i < count; ++i) {  // scores become probabilities
            auto row = scores_.row(i);
            const float target_score = row(byte_at(batch, i, sizes_.context)) - row.maxCoeff();
            row = (row.array() - row.maxCoeff()).exp();
            const float total = row.sum();
            row /= total;
            loss_sum += std::log(static_cast<double>(total)) - static_cast<double>(target_score);
        }
        return loss_sum;
    }

    /// Sets every gradient to `weight` times that of the last forward's sum, from the last layer to
    /// the first, and calls `ready(index)` as each becomes final.
    void backward(const Batch& batch, float weight, const std::function<void(std::size_t)>& ready) {
        if (batch.empty()) {
            for (std::size_t index = tensors_.size(); index-- > 0;) {
                gradient(index).setZero();
                ready(index);
            }
            return;
        }
        const auto count = static_cast<Eigen::Index>(batch.size());
        Matrix& by_score = scores_;  // d loss / d score = probability - (1 for the target)
        for (Eigen::Index i = 0; i < count; ++i) {
            by_score(i, byte_at(batch, i, sizes_.context)) -= 1.0F;
        }
        by_score *= weight;
        gradient(output_bias) = by_score.colwise().sum();
        ready(output_bias);
        gradient(output_weight).noalias() = hidden_.transpose() * by_score;
        ready(output_weight);

        by_hidden_.noalias() = by_score * value(output_weight).transpose();
        by_hidden_.array() *= 1.0F - hidden_.array().square();
        gradient(hidden_bias) = by_hidden_.colwise().sum();
        ready(hidden_bias);
        gradient(hidden_weight).noalias() = input_.transpose() * by_hidden_;
        ready(hidden_weight);

        by_input_.noalias() = by_hidden_ * value(hidden_weight).transpose();
        gradient(embedding_table).setZero();
        for (Eigen::Index i = 0; i < count; ++i) {
            for (Eigen::Index c = 0; c < sizes_.context; ++c) {
                gradient(embedding_table).row(byte_at(batch, i, c)) +=
                    by_input_.row(i).segment(c * sizes_.embedding, sizes_.embedding);
            }
        }
        ready(embedding_table);
    }

    /// One step of SGD with momentum 0.9.
    void apply_gradients(float learning_rate) {
        for (Tensor& tensor : tensors_) {
            tensor.momentum = 0.9F * tensor.momentum + tensor.gradient;
            tensor.value -= learning_rate * tensor.momentum;
        }
    }

    [[nodiscard]] std::span<Tensor> tensors() { return tensors_; }

    static regroup::TensorView view(Matrix& matrix) {
        return std::span<float>(matrix.data(), static_cast<std::size_t>(matrix.size()));
    }

   private:
    static std::uint8_t byte_at(const Batch& batch, Eigen::Index sample, Eigen::Index place) {
        return batch[static_cast<std::size_t>(sample)][place];
    }
    Matrix& value(std::size_t index) { return tensors_[index].value; }
    Matrix& gradient(std::size_t index) { return tensors_[index].gradient; }

    ModelSizes sizes_;
    std::array<Tensor, 5> tensors_;
    Matrix input_;      // [n, C*E]
    Matrix hidden_;     // [n, H]
    Matrix scores_;     // [n, 256]
    Matrix by_hidden_;  // [n, H]
    Matrix by_input_;   // [n, C*E]
};

}  // namespace byte_lm
