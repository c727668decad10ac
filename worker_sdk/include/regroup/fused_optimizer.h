// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>
#include <regroup/grad_scaler.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace regroup {

/// What an optimizer works on: a flat buffer of parameters and what belongs to it, of equal count
/// on one device. Fastest if each begins at a multiple of 16 bytes.
struct OptimizerTensors {
    /// float32: the parameters as they are trained.
    TensorView master{};
    /// float32, float16 or bfloat16. Never written. Where it is a DistributedDataParallel's it
    /// moves once: see `set_gradients`.
    ConstTensorView gradient{};
    /// Optional, float16 or bfloat16: the copy that forward and backward read. Written in the same
    /// pass, each value the master rounded to nearest.
    TensorView shadow{};
};

/// Stochastic gradient descent, as torch.optim.SGD computes it:
///
///     g += weight_decay * p
///     v  = momentum * v + (1 - dampening) * g        (in the first step v = g)
///     p -= learning_rate * (nesterov ? g + momentum * v : v)
struct SgdOptions {
    double learning_rate = 0.01;
    double momentum = 0.0;
    double dampening = 0.0;
    double weight_decay = 0.0;
    /// Needs a momentum, and no dampening.
    bool nesterov = false;
};

/// Adam as torch.optim.Adam computes it, with bias correction; AdamW if the weight decay is
/// decoupled, which shrinks the parameters by themselves and not through the moments.
struct AdamOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    bool decoupled_weight_decay = false;
};

/// An optimizer whose step is one pass over the memory it needs: divides the gradients by a loss
/// scale, updates moments and master parameters, and writes their low-precision shadow. On a GPU
/// that is one kernel for each OptimizerTensors, in the order of `stream`, without a word from the
/// host.
///
/// Owns the moments; master, gradient and shadow stay the caller's and outlive it. Parameters that
/// need other options get an optimizer of their own.
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

    void step(Stream stream = {});
    /// The same with scaled gradients. If the scaler has met an overflow in this step, masters,
    /// shadows, moments and the count of steps all stay as they are. Throws Error
    /// `invalid_argument` if the scaler is for another device.
    void step(const GradScaler& scaler, Stream stream = {});

    /// The gradients are elsewhere from now on: one for each OptimizerTensors, in their order.
    /// Needed after the first step of a DistributedDataParallel whose `gradient(i)` were given
    /// here, as it lays its buckets out anew then:
    ///
    ///     if (!were_final && ddp.buckets_are_final()) {
    ///         optimizer.set_gradients(views);  // of ddp.gradient(0), ddp.gradient(1), ...
    ///     }
    ///
    /// A step that was captured into a CUDA graph keeps the old places. Throws Error
    /// `invalid_argument` as the constructor does, and changes nothing then.
    void set_gradients(std::span<const ConstTensorView> gradients);

    /// Holds from the next step in `stream` on, also for one that was captured into a CUDA graph.
    void set_learning_rate(double learning_rate, Stream stream = {});
    [[nodiscard]] double learning_rate() const noexcept;

    /// Rounds all masters into their shadows: at the start, and after the masters were loaded or
    /// received from another rank.
    void write_shadows(Stream stream = {});

    /// Steps done, without those skipped. On a GPU this waits for `stream`.
    [[nodiscard]] std::int64_t step_count(Stream stream = {}) const;

    /// What makes up the state, on the device: the count of steps (int64), then the moments
    /// (float32), flat over all tensors. To start replicas equal, hand it to
    /// DistributedDataParallel among its buffers.
    [[nodiscard]] std::vector<TensorView> state() const;

    /// The state and the learning rate, under names that begin with `prefix`; not the masters,
    /// which are the caller's. On a GPU in the order of `stream`, the one in which the steps are,
    /// and complete on return. `load` throws as Checkpoint's readers, for instance if the
    /// checkpoint is of an optimizer for another number of parameters.
    void save(Checkpoint& checkpoint, std::string_view prefix = "optimizer",
              Stream stream = {}) const;
    void load(const Checkpoint& checkpoint, std::string_view prefix = "optimizer",
              Stream stream = {});

   private:
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
