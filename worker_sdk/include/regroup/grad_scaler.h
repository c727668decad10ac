// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace regroup {

struct GradScalerOptions {
    /// The loss is multiplied by this at first. Positive.
    double init_scale = 65536.0;
    /// The scale is multiplied by this after `growth_interval` steps in a row without an overflow.
    /// At least 1.
    double growth_factor = 2.0;
    /// The scale is multiplied by this after an overflow. Between 0 and 1.
    double backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
    /// False: the scale stays 1, nothing is checked and no step is skipped. So a program needs no
    /// second code path for formats with the range of float32.
    bool enabled = true;
};

/// Dynamic loss scaling. Small gradients lose precision or become zero in float16. Therefore the
/// loss, and by the chain rule every gradient, is multiplied by a scale, and the optimizer divides
/// by it again. A scale that is too large causes inf or NaN among the gradients; then every rank
/// skips the step, and the next step has a smaller scale.
///
///     std::vector<float> weights(1000);
///     std::vector<float> gradients(1000);
///     regroup::GradScaler scaler;
///     regroup::FusedOptimizer optimizer(
///         {{.master = std::span(weights), .gradient = std::span(gradients)}},
///         regroup::SgdOptions{.learning_rate = 0.1});
///     for (int step = 0; step < 100; ++step) {
///         for (std::size_t i = 0; i < weights.size(); ++i) {
///             gradients[i] = weights[i] * static_cast<float>(scaler.scale());  // Backward.
///         }
///         group.all_reduce(std::span(gradients), regroup::ReduceOp::avg).wait();
///         scaler.check(std::span(gradients));
///         scaler.agree(group).wait();
///         optimizer.step(scaler);  // Divides by the scale, or changes nothing after an overflow.
///         scaler.update();
///     }
///
/// All changing values are in one small record on the device. Only the readers that say so wait for
/// a GPU, and a step that is captured into a CUDA graph replays with the current scale. All ranks
/// update alike, so their scales stay equal without communication.
///
/// Gradients that were averaged over all ranks overflow on all of them, since inf and NaN survive a
/// sum. agree() is for overflows that only one rank sees: shards of gradients, checks before the
/// average, gradients that are sent in a wider format. It costs an all-reduce of one float.
///
/// Used by one thread.
class GradScaler {
   public:
    /// Works on `device`, on which the gradients must lie. Throws Error `invalid_argument` for
    /// options outside their bounds, or a GPU in a build without CUDA; `system` if CUDA refuses.
    explicit GradScaler(const GradScalerOptions& options = {}, Device device = {});
    ~GradScaler();
    GradScaler(GradScaler&&) noexcept;
    GradScaler& operator=(GradScaler&&) noexcept;
    GradScaler(const GradScaler&) = delete;
    GradScaler& operator=(const GradScaler&) = delete;

    /// The scale of this step. On a GPU this waits for `stream`.
    [[nodiscard]] double scale(Stream stream = {}) const;
    /// The scale on the device, one float32, for a kernel that begins the backward pass. Read-only.
    [[nodiscard]] TensorView scale_tensor() const noexcept;

    /// Records whether `gradient` (float32, float16 or bfloat16) holds inf or NaN. Once per tensor
    /// and step.
    void check(ConstTensorView gradient, Stream stream = {});
    /// The same for many tensors. On a GPU this takes one launch for hundreds of them.
    void check_all(std::span<const ConstTensorView> gradients, Stream stream = {});
    /// check(), and divides by the scale in place, for operations that need true gradients before
    /// the step, such as clipping. Float32 only, since low precision needs the scale. After this
    /// the step does not divide again, so call it for all tensors or none.
    void unscale(TensorView gradient, Stream stream = {});
    void unscale_all(std::span<const TensorView> gradients, Stream stream = {});
    /// Records an overflow that the caller has found.
    void report_overflow(Stream stream = {});

    /// Makes an overflow on any rank count on every rank: the maximum of overflow_tensor(). On
    /// "cpu" wait for it before the step. Throws as ProcessGroup::all_reduce.
    [[nodiscard]] Work agree(ProcessGroup& group);
    /// One float32 on the device, not zero if this step has found an overflow. A sum over the ranks
    /// keeps that meaning, so it may be part of a reduction of the caller.
    [[nodiscard]] TensorView overflow_tensor() const noexcept;
    /// Whether this step will be skipped. On a GPU this waits for `stream`.
    [[nodiscard]] bool overflowed(Stream stream = {}) const;

    /// Ends the step: chooses the next scale and clears the overflow.
    void update(Stream stream = {});
    /// Steps skipped so far. On a GPU this waits for `stream`.
    [[nodiscard]] std::int64_t skipped_steps(Stream stream = {}) const;

    /// The tensors of the state, on the device: the scale (float32), the steps without an overflow
    /// (int32), the steps skipped (int64). To start replicas equal, pass them to
    /// DistributedDataParallel as buffers.
    [[nodiscard]] std::vector<TensorView> state() const;

    /// Saves and loads the state, under names that begin with `prefix`. Between steps. On a GPU,
    /// `stream` must be the stream of the steps; the calls return when the copy is complete. `load`
    /// throws as Checkpoint's readers.
    void save(Checkpoint& checkpoint, std::string_view prefix = "scaler", Stream stream = {}) const;
    void load(const Checkpoint& checkpoint, std::string_view prefix = "scaler", Stream stream = {});

   private:
    friend class FusedOptimizer;
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
