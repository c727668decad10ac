// SPDX-License-Identifier: Apache-2.0
// The network with Eigen. A convolution is a matrix product: the patches of an image under the
// kernel become the columns of a matrix (im2col).
#include <algorithm>
#include <cmath>

#include <Eigen/Core>

#include "network.h"

namespace mnist {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;

/// A square convolution without padding, followed by max-pooling of 2 x 2 and relu. Works sample by
/// sample; keeps the patches and choices of a batch for its backward.
class ConvolutionBlock {
   public:
    ConvolutionBlock(std::size_t channels_in, std::size_t channels_out, std::size_t side_in)
        : channels_in_(channels_in),
          channels_out_(channels_out),
          side_in_(side_in),
          side_out_(side_in - kKernel + 1),
          side_pooled_(side_out_ / 2) {}

    [[nodiscard]] std::size_t input_count() const { return channels_in_ * side_in_ * side_in_; }
    [[nodiscard]] std::size_t output_count() const {
        return channels_out_ * side_pooled_ * side_pooled_;
    }

    void resize(std::size_t count) {
        patches_.resize(count);
        chosen_.resize(count * output_count());
        output_.resize(static_cast<Index>(count), static_cast<Index>(output_count()));
    }

    /// `output()` row `sample` from `input`.
    void forward(std::size_t sample, const float* input, const float* weight, const float* bias) {
        Matrix& patches = patches_[sample];
        gather_patches(input, patches);
        product_.noalias() = ConstMap(weight, index(channels_out_), patches.rows()) * patches;
        float* const output = output_.row(index(sample)).data();
        std::uint32_t* const chosen = chosen_.data() + sample * output_count();
        for (std::size_t at = 0; at < output_count(); ++at) {
            const std::size_t channel = at / (side_pooled_ * side_pooled_);
            const std::size_t y = at / side_pooled_ % side_pooled_ * 2;
            const std::size_t x = at % side_pooled_ * 2;
            const float* const plane = product_.row(index(channel)).data();
            std::size_t best = y * side_out_ + x;
            for (const std::size_t other : {best + 1, best + side_out_, best + side_out_ + 1}) {
                best = plane[other] > plane[best] ? other : best;
            }
            output[at] = std::max(0.0F, plane[best] + bias[channel]);
            chosen[at] = static_cast<std::uint32_t>(best);
        }
    }

    /// Adds to the gradients of weight and bias; sets `by_input`, if wanted.
    void backward(std::size_t sample, const float* by_output, const float* weight, float* by_weight,
                  float* by_bias, float* by_input) {
        by_product_.setZero(index(channels_out_), index(side_out_ * side_out_));
        const float* const output = output_.row(index(sample)).data();
        for (std::size_t at = 0; at < output_count(); ++at) {
            // Relu and pooling pass the gradient to the chosen position only.
            if (output[at] > 0.0F) {
                const std::size_t channel = at / (side_pooled_ * side_pooled_);
                by_product_(index(channel), index(chosen_[sample * output_count() + at])) =
                    by_output[at];
                by_bias[channel] += by_output[at];
            }
        }
        const Matrix& patches = patches_[sample];
        Map(by_weight, index(channels_out_), patches.rows()).noalias() +=
            by_product_ * patches.transpose();
        if (by_input != nullptr) {
            by_patches_.noalias() =
                ConstMap(weight, index(channels_out_), patches.rows()).transpose() * by_product_;
            scatter_patches(by_patches_, by_input);
        }
    }

    [[nodiscard]] const Matrix& output() const { return output_; }

   private:
    static Index index(std::size_t value) { return static_cast<Index>(value); }

    // Calls visit(row, column, count, at) for each run of `count` pixels from `at` on that are
    // neighbours in a row of the matrix of patches.
    template <class Visit>
    void for_runs(Visit visit) const {
        for (std::size_t row = 0; row < channels_in_ * kKernel * kKernel; ++row) {
            const std::size_t channel = row / (kKernel * kKernel);
            const std::size_t dy = row / kKernel % kKernel;
            const std::size_t dx = row % kKernel;
            for (std::size_t y = 0; y < side_out_; ++y) {
                visit(row, y * side_out_, (channel * side_in_ + y + dy) * side_in_ + dx);
            }
        }
    }
    void gather_patches(const float* input, Matrix& patches) const {
        patches.resize(index(channels_in_ * kKernel * kKernel), index(side_out_ * side_out_));
        for_runs([&](std::size_t row, std::size_t column, std::size_t at) {
            std::copy_n(input + at, side_out_, patches.row(index(row)).data() + column);
        });
    }
    void scatter_patches(const Matrix& patches, float* input) const {
        std::fill_n(input, input_count(), 0.0F);
        for_runs([&](std::size_t row, std::size_t column, std::size_t at) {
            const float* const run = patches.row(index(row)).data() + column;
            for (std::size_t x = 0; x < side_out_; ++x) {
                input[at + x] += run[x];
            }
        });
    }

    std::size_t channels_in_;
    std::size_t channels_out_;
    std::size_t side_in_;
    std::size_t side_out_;
    std::size_t side_pooled_;
    std::vector<Matrix> patches_;        // by sample: [channels_in * 25, side_out^2]
    std::vector<std::uint32_t> chosen_;  // [n, output_count]: where in its plane each maximum was
    Matrix output_;                      // [n, output_count]
    Matrix product_;                     // [channels_out, side_out^2]
    Matrix by_product_;                  // likewise
    Matrix by_patches_;                  // [channels_in * 25, side_out^2]
};

class CpuNetwork : public Network {
   public:
    void forward(const Batch& batch) override {
        scores_.clear();
        if (batch.count() == 0) {
            return;
        }
        const auto count = static_cast<Index>(batch.count());
        conv1_.resize(batch.count());
        conv2_.resize(batch.count());
        for (std::size_t i = 0; i < batch.count(); ++i) {
            conv1_.forward(i, batch.pixels.data() + i * kPixels, value(conv1_weight),
                           value(conv1_bias));
            conv2_.forward(i, conv1_.output().row(static_cast<Index>(i)).data(),
                           value(conv2_weight), value(conv2_bias));
        }
        hidden_.noalias() =
            conv2_.output() * ConstMap(value(fc1_weight), kHidden, kFeatures).transpose();
        hidden_.rowwise() += ConstMap(value(fc1_bias), 1, kHidden).row(0);
        hidden_ = hidden_.cwiseMax(0.0F);
        if (!batch.dropout.empty()) {
            hidden_.array() *= ConstMap(batch.dropout.data(), count, kHidden).array();
        }
        outputs_.noalias() = hidden_ * ConstMap(value(fc2_weight), kClasses, kHidden).transpose();
        outputs_.rowwise() += ConstMap(value(fc2_bias), 1, kClasses).row(0);

        for (Index i = 0; i < count; ++i) {  // outputs become probabilities
            auto row = outputs_.row(i);
            Index best = 0;
            const float most = row.maxCoeff(&best);
            const std::int32_t label = batch.labels[static_cast<std::size_t>(i)];
            const float target = row(label) - most;
            row = (row.array() - most).exp();
            const float sum = row.sum();
            row /= sum;
            scores_.push_back(
                {.loss = std::log(sum) - target, .correct = best == label ? 1.0F : 0.0F});
        }
    }

    void backward(const Batch& batch, float weight,
                  regroup::DistributedDataParallel& gradients) override {
        if (batch.count() == 0) {
            return report_all(gradients);
        }
        const auto gradient = [&](std::size_t index) { return place_of(gradients, index); };
        const auto count = static_cast<Index>(batch.count());
        for (Index i = 0; i < count; ++i) {  // d loss / d output = probability - (1 for the label)
            outputs_(i, batch.labels[static_cast<std::size_t>(i)]) -= 1.0F;
        }
        outputs_ *= weight;
        Map(gradient(fc2_bias), 1, kClasses) = outputs_.colwise().sum();
        gradients.gradient_ready(fc2_bias);
        Map(gradient(fc2_weight), kClasses, kHidden).noalias() = outputs_.transpose() * hidden_;
        gradients.gradient_ready(fc2_weight);

        by_hidden_.noalias() = outputs_ * ConstMap(value(fc2_weight), kClasses, kHidden);
        by_hidden_ = (hidden_.array() > 0.0F).select(by_hidden_, 0.0F);
        if (!batch.dropout.empty()) {
            by_hidden_.array() *= ConstMap(batch.dropout.data(), count, kHidden).array();
        }
        Map(gradient(fc1_bias), 1, kHidden) = by_hidden_.colwise().sum();
        gradients.gradient_ready(fc1_bias);
        Map(gradient(fc1_weight), kHidden, kFeatures).noalias() =
            by_hidden_.transpose() * conv2_.output();
        gradients.gradient_ready(fc1_weight);

        by_features_.noalias() = by_hidden_ * ConstMap(value(fc1_weight), kHidden, kFeatures);
        by_conv1_.resize(count, static_cast<Index>(conv1_.output_count()));
        for (Index i = 0; i < count; ++i) {
            conv2_.backward(static_cast<std::size_t>(i), by_features_.row(i).data(),
                            value(conv2_weight), gradient(conv2_weight), gradient(conv2_bias),
                            by_conv1_.row(i).data());
        }
        gradients.gradient_ready(conv2_bias);
        gradients.gradient_ready(conv2_weight);
        for (Index i = 0; i < count; ++i) {
            conv1_.backward(static_cast<std::size_t>(i), by_conv1_.row(i).data(),
                            value(conv1_weight), gradient(conv1_weight), gradient(conv1_bias),
                            nullptr);
        }
        gradients.gradient_ready(conv1_bias);
        gradients.gradient_ready(conv1_weight);
    }

    regroup::TensorView values() override { return std::span(values_); }
    std::vector<Score> scores() override { return scores_; }

   private:
    const float* value(std::size_t index) const { return values_.data() + offset_of(index); }

    std::vector<float> values_ = std::vector<float>(kParameterCount);
    std::vector<Score> scores_;
    ConvolutionBlock conv1_{1, kChannels1, kImageSide};
    ConvolutionBlock conv2_{kChannels1, kChannels2, 12};
    Matrix hidden_;       // [n, 50], after relu and dropout
    Matrix outputs_;      // [n, 10]
    Matrix by_hidden_;    // [n, 50]
    Matrix by_features_;  // [n, 320]
    Matrix by_conv1_;     // [n, 1440]
};

}  // namespace

std::unique_ptr<Network> make_cpu_network() {
    return std::make_unique<CpuNetwork>();
}

}  // namespace mnist
