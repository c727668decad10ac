// SPDX-License-Identifier: Apache-2.0
// The model with Eigen. CPUs have no arithmetic for 16-bit formats. Matrices hold floats that are
// rounded to them, which gives the same values.
#include <regroup/low_precision.h>

#include <cmath>
#include <cstring>
#include <span>

#include <Eigen/Core>

#include "model.h"

namespace mixed_precision {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

Index to_index(std::size_t value) {
    return static_cast<Index>(value);
}

/// Floats in memory of another format.
class Packed {
   public:
    Packed(std::size_t count, DType dtype)
        : bytes_(count * regroup::item_bytes(dtype)), count_(count), dtype_(dtype) {}

    [[nodiscard]] TensorView view() { return {bytes_.data(), count_, dtype_}; }

    void store(std::size_t first, const float* values, std::size_t count) {
        for_type([&]<class T>(T* items) {
            for (std::size_t i = 0; i < count; ++i) {
                items[first + i] = static_cast<T>(values[i]);
            }
        });
    }
    void clear(std::size_t first, std::size_t count) {
        const TensorView part = view().part(first, count);
        std::memset(part.data, 0, part.bytes());
    }
    void load(float* values) {
        for_type([&]<class T>(const T* items) {
            for (std::size_t i = 0; i < count_; ++i) {
                values[i] = static_cast<float>(items[i]);
            }
        });
    }

   private:
    template <class Action>
    void for_type(Action action) {
        if (dtype_ == DType::float16) {
            action(reinterpret_cast<regroup::float16*>(bytes_.data()));
        } else if (dtype_ == DType::bfloat16) {
            action(reinterpret_cast<regroup::bfloat16*>(bytes_.data()));
        } else {
            action(reinterpret_cast<float*>(bytes_.data()));
        }
    }

    std::vector<std::byte> bytes_;
    std::size_t count_;
    DType dtype_;
};

class CpuModel : public Model {
   public:
    CpuModel(const Sizes& model_sizes, const Level& model_level)
        : Model(model_sizes, model_level),
          count_(offset_of(kTensorCount)),
          masters_(count_),
          widened_(count_),
          weights_(is_low() ? count_ : 0, model_level.compute),
          gradients_(count_, model_level.gradients) {}

    void forward(const Batch& batch) override {
        if (batch.count() == 0) {
            return;
        }
        if (is_low()) {
            weights_.load(widened_.data());
        }
        const Index n = to_index(batch.count());
        inputs_ = ConstMap(batch.inputs.data(), n, to_index(sizes().inputs));
        round(inputs_);
        hidden_.noalias() = inputs_ * weight(hidden_weight, sizes().inputs);
        hidden_.rowwise() += weight(hidden_bias, 1).row(0);
        hidden_ = (hidden_.array() < 0.0F).select(0.0F, hidden_);  // NaN stays
        round(hidden_);
        scores_.noalias() = hidden_ * weight(output_weight, sizes().hidden);
        scores_.rowwise() += weight(output_bias, 1).row(0);
        round(scores_);
        for (Index i = 0; i < n; ++i) {  // scores become probabilities
            auto row = scores_.row(i);
            Index best = 0;
            const float most = row.maxCoeff(&best);
            const std::int32_t label = batch.labels[static_cast<std::size_t>(i)];
            const float target = row(label) - most;
            row = (row.array() - most).exp();
            const float sum = row.sum();
            row /= sum;
            const double loss = std::log(static_cast<double>(sum)) - static_cast<double>(target);
            if (std::isfinite(loss)) {
                totals_.loss += loss;
                totals_.correct += best == label ? 1.0 : 0.0;
                totals_.samples += 1.0;
            }
        }
    }

    void backward(const Batch& batch, float weight_of_sample, const TensorView& scale,
                  const Ready& ready) override {
        if (batch.count() == 0) {
            for (std::size_t index = kTensorCount; index-- > 0;) {
                gradients_.clear(offset_of(index), count_of(index));
                ready(index);
            }
            return;
        }
        const Index n = to_index(batch.count());
        for (Index i = 0; i < n; ++i) {  // d loss / d score = probability - (1 for the label)
            scores_(i, batch.labels[static_cast<std::size_t>(i)]) -= 1.0F;
        }
        scores_ *= weight_of_sample * *static_cast<const float*>(scale.data);
        round(scores_);
        store(output_bias, scores_.colwise().sum());
        ready(output_bias);
        store(output_weight, hidden_.transpose() * scores_);
        ready(output_weight);
        by_hidden_.noalias() = scores_ * weight(output_weight, sizes().hidden).transpose();
        by_hidden_ = (hidden_.array() > 0.0F).select(by_hidden_, 0.0F);
        round(by_hidden_);
        store(hidden_bias, by_hidden_.colwise().sum());
        ready(hidden_bias);
        store(hidden_weight, inputs_.transpose() * by_hidden_);
        ready(hidden_weight);
    }

    void forget_master() override { weights_.load(masters_.data()); }

    TensorView masters() override { return std::span(masters_); }
    TensorView weights() override { return is_low() ? weights_.view() : masters(); }
    TensorView gradients() override { return gradients_.view(); }
    TensorView totals() override {
        return {&totals_, sizeof totals_ / sizeof(double), DType::float64};
    }
    void read(void* host, const TensorView& from) override {
        std::memcpy(host, from.data, from.bytes());
    }
    void write(const TensorView& to, const void* host) override {
        std::memcpy(to.data, host, to.bytes());
    }

   private:
    [[nodiscard]] bool is_low() const { return level().compute != DType::float32; }

    // To the format of the computation, and back to float.
    void round(Matrix& values) const {
        if (level().compute == DType::float16) {
            values = values.unaryExpr(
                [](float value) { return static_cast<float>(regroup::float16(value)); });
        } else if (level().compute == DType::bfloat16) {
            values = values.unaryExpr(
                [](float value) { return static_cast<float>(regroup::bfloat16(value)); });
        }
    }
    [[nodiscard]] ConstMap weight(std::size_t index, std::size_t rows) const {
        const std::vector<float>& all = is_low() ? widened_ : masters_;
        return {all.data() + offset_of(index), to_index(rows), to_index(count_of(index) / rows)};
    }
    void store(std::size_t index, const Matrix& gradient) {
        gradients_.store(offset_of(index), gradient.data(), count_of(index));
    }

    std::size_t count_;
    std::vector<float> masters_;
    std::vector<float> widened_;  // the weights, as the products read them
    Packed weights_;
    Packed gradients_;
    Totals totals_;
    Matrix inputs_;     // [n, inputs]
    Matrix hidden_;     // [n, hidden]
    Matrix scores_;     // [n, classes]
    Matrix by_hidden_;  // [n, hidden]
};

}  // namespace

std::unique_ptr<Model> make_cpu_model(const Sizes& sizes, const Level& level) {
    return std::make_unique<CpuModel>(sizes, level);
}

}  // namespace mixed_precision
