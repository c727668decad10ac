// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/tensor_view.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mixed_precision {

using regroup::DType;
using regroup::TensorView;

/// The formats of storage and computation, with the optimization levels of NVIDIA Apex:
///
///          weights that are trained   weights that are read   gradients   loss scaling
///     O0   float32                    float32                 float32     no
///     O1   float32                    low                     float32     yes
///     O2   float32 ("master")         low                     low         yes
///     O3   low                        low                     low         no
struct Level {
    DType compute = DType::float32;
    DType gradients = DType::float32;
    bool keeps_master = true;
    bool scales_loss = false;
};

/// `low` is float16 or bfloat16. The latter has float32's range, and needs no loss scaling.
inline Level level_of(int number, DType low) {
    return {.compute = number == 0 ? DType::float32 : low,
            .gradients = number >= 2 ? low : DType::float32,
            .keeps_master = number != 3,
            .scales_loss = (number == 1 || number == 2) && low == DType::float16};
}

struct Sizes {
    std::size_t inputs = 32;
    std::size_t hidden = 128;
    std::size_t classes = 10;
};

enum : std::size_t { hidden_weight, hidden_bias, output_weight, output_bias };
inline constexpr std::size_t kTensorCount = output_bias + 1;

/// This rank's share of a global batch. May be empty.
struct Batch {
    std::vector<float> inputs;         ///< [n, inputs]
    std::vector<std::int32_t> labels;  ///< [n]

    [[nodiscard]] std::size_t count() const { return labels.size(); }
};

/// Sums over samples, in the model's memory so that a process group reaches them.
struct Totals {
    double loss = 0.0;
    double correct = 0.0;
    double samples = 0.0;  ///< Samples with a finite loss; all sums leave out the others.
};

/// A perceptron on one device:
///
///     [n, inputs] -> relu [n, hidden] -> softmax [n, classes]
///
/// Matrix products read operands of `level.compute` and add in float32, as tensor cores do. Their
/// results are rounded again. Softmax and loss are float32 on every level.
class Model {
   public:
    using Ready = std::function<void(std::size_t)>;

    Model(const Sizes& sizes, const Level& level) : sizes_(sizes), level_(level) {}
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    /// Adds the batch to the totals.
    virtual void forward(const Batch& batch) = 0;
    /// Sets all gradients to `weight` * `scale` times those of the last forward's sum of losses,
    /// from the last layer to the first, and calls `ready(index)` as each becomes final. `scale` is
    /// one float32 on the device, see GradScaler::scale_tensor.
    virtual void backward(const Batch& batch, float weight, const TensorView& scale,
                          const Ready& ready) = 0;
    /// Overwrites the masters with the weights, as level O3 requires: bits beyond the low format
    /// are lost.
    virtual void forget_master() = 0;

    [[nodiscard]] virtual TensorView masters() = 0;    ///< All weights, flat, float32.
    [[nodiscard]] virtual TensorView weights() = 0;    ///< In level.compute; the masters on O0.
    [[nodiscard]] virtual TensorView gradients() = 0;  ///< In level.gradients.
    [[nodiscard]] virtual TensorView totals() = 0;     ///< [3] float64
    /// Between the device and the host; waits.
    virtual void read(void* host, const TensorView& from) = 0;
    virtual void write(const TensorView& to, const void* host) = 0;

    [[nodiscard]] const Level& level() const { return level_; }
    [[nodiscard]] const Sizes& sizes() const { return sizes_; }
    [[nodiscard]] std::size_t count_of(std::size_t index) const {
        const std::array<std::size_t, kTensorCount> counts{
            sizes_.inputs * sizes_.hidden, sizes_.hidden, sizes_.hidden * sizes_.classes,
            sizes_.classes};
        return counts[index];
    }
    /// Where tensor `index` begins in the flat buffers, and where the last one ends.
    [[nodiscard]] std::size_t offset_of(std::size_t index) const {
        std::size_t offset = 0;
        for (std::size_t i = 0; i < index; ++i) {
            offset += count_of(i);
        }
        return offset;
    }
    /// For DistributedDataParallel. A value is of its gradient's dtype.
    [[nodiscard]] std::vector<regroup::Parameter> parameters() {
        const TensorView values = level_.gradients == level_.compute ? weights() : masters();
        std::vector<regroup::Parameter> list;
        for (std::size_t i = 0; i < kTensorCount; ++i) {
            list.push_back({values.part(offset_of(i), count_of(i)),
                            gradients().part(offset_of(i), count_of(i))});
        }
        return list;
    }

   private:
    Sizes sizes_;
    Level level_;
};

[[nodiscard]] std::unique_ptr<Model> make_cpu_model(const Sizes& sizes, const Level& level);
/// On this rank's GPU, with cuBLAS. Throws regroup::Error if there is none, or if this program was
/// built without.
[[nodiscard]] std::unique_ptr<Model> make_cuda_model(const Sizes& sizes, const Level& level,
                                                     const regroup::Context& context);

}  // namespace mixed_precision
