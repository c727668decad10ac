// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/grad_scaler.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace regroup {

/// A flat buffer of parameters with its gradients, of equal count on one device. Fastest if each
/// buffer begins at a multiple of 16 bytes.
struct OptimizerTensors {
    /// float32: the parameters that the optimizer updates.
    TensorView master{};
    /// float32, float16 or bfloat16. Never written. May be left out: then call `set_gradients`
    /// before the first step.
    ConstTensorView gradient{};
    /// Optional, float16 or bfloat16: the copy that forward and backward read. The step writes it
    /// in the same pass: each value is the master rounded to nearest.
    TensorView shadow{};
};

/// Stochastic gradient descent, as torch.optim.SGD computes it, for a parameter p, its gradient g
/// and its velocity v:
/// - g += weight_decay * p
/// - v = momentum * v + (1 - dampening) * g; in the first step v = g
/// - p -= learning_rate * (nesterov ? g + momentum * v : v)
struct SgdOptions {
    double learning_rate = 0.01;
    double momentum = 0.0;
    double dampening = 0.0;
    double weight_decay = 0.0;
    /// Needs a momentum, and no dampening.
    bool nesterov = false;
};

/// Adam as torch.optim.Adam computes it, with bias correction; AdamW if the weight decay is
/// decoupled, so that it changes the parameters directly and not the moments.
struct AdamOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    bool decoupled_weight_decay = false;
};

/// An optimizer whose step is one pass over its memory: it divides the gradients by a loss scale,
/// updates moments and master parameters, and writes their low-precision shadow. On a GPU one
/// kernel updates hundreds of OptimizerTensors of the same dtypes, in the order of `stream`, and
/// the host does not wait.
///
/// Owns the moments. The caller owns master, gradient and shadow, which must outlive the optimizer.
/// Parameters with other options need a separate optimizer.
///
/// The results are the same bits on every CPU and every GPU, except for the bits of a NaN: no
/// operation is fused or reordered.
///
/// Used by one thread.
class FusedOptimizer {
   public:
    /// Throws Error `invalid_argument` naming the tensor and what is wrong with it, or the option
    /// outside its bounds, or for tensors on a GPU in a build without CUDA; `system` if there is
    /// not enough memory or CUDA refuses.
    FusedOptimizer(const std::vector<OptimizerTensors>& tensors, const SgdOptions& options);
    FusedOptimizer(const std::vector<OptimizerTensors>& tensors, const AdamOptions& options);
    ~FusedOptimizer();
    FusedOptimizer(FusedOptimizer&&) noexcept;
    FusedOptimizer& operator=(FusedOptimizer&&) noexcept;
    FusedOptimizer(const FusedOptimizer&) = delete;
    FusedOptimizer& operator=(const FusedOptimizer&) = delete;

    /// Throws Error `invalid_argument` if a gradient is missing.
    void step(Stream stream = {});
    /// The same with scaled gradients. If the scaler has found an overflow in this step, masters,
    /// shadows, moments and the count of steps do not change. Throws Error `invalid_argument` if
    /// the scaler is for another device.
    void step(const GradScaler& scaler, Stream stream = {});

    /// Sets or replaces the gradients: one for each OptimizerTensors, in their order. A step that
    /// was captured into a CUDA graph keeps the old places. Throws Error `invalid_argument` as the
    /// constructor does, and then changes nothing.
    void set_gradients(std::span<const ConstTensorView> gradients);
    /// The same with the gradients of `ddp`, whose parameters are those of the optimizer in the
    /// same order. In an ElasticLoop, call it in `on_round`, where the wrapper is replaced:
    ///
    ///     std::vector<float> weights(1000);
    ///     regroup::FusedOptimizer optimizer({{.master = std::span(weights)}},
    ///                                       regroup::SgdOptions{.learning_rate = 0.1});
    ///     regroup::DistributedDataParallel ddp(group, {{std::span(weights)}});
    ///     optimizer.set_gradients(ddp);
    ///     for (int step = 0; step < 100; ++step) {
    ///         ddp.zero_gradients();
    ///         // Forward and backward pass into ddp.gradient(0).
    ///         ddp.reduce_gradients();
    ///         optimizer.step();
    ///     }
    void set_gradients(const DistributedDataParallel& ddp);

    /// Takes effect with the next step in `stream`, also if that was captured into a CUDA graph.
    void set_learning_rate(double learning_rate, Stream stream = {});
    [[nodiscard]] double learning_rate() const noexcept;

    /// Rounds all masters into their shadows. Call it at the start, and after masters were loaded
    /// or received from another rank.
    void write_shadows(Stream stream = {});

    /// Steps done, without skipped ones. On a GPU this waits for `stream`.
    [[nodiscard]] std::int64_t step_count(Stream stream = {}) const;

    /// The tensors of the state, on the device: the count of steps (int64), then the moments
    /// (float32), flat over all tensors. To start replicas equal, pass them to
    /// DistributedDataParallel as buffers.
    [[nodiscard]] std::vector<TensorView> state() const;

    /// Saves and loads the state and the learning rate, under names that begin with `prefix`, but
    /// not the masters. On a GPU, `stream` must be the stream of the steps; the calls return when
    /// the copy is complete. `load` throws as Checkpoint's readers, for instance if the checkpoint
    /// is of an optimizer for another number of parameters.
    void save(Checkpoint& checkpoint, std::string_view prefix = "optimizer",
              Stream stream = {}) const;
    void load(const Checkpoint& checkpoint, std::string_view prefix = "optimizer",
              Stream stream = {});

   private:
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
