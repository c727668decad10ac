// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace regroup {

struct GradScalerOptions {
    /// What the loss is multiplied by at first. Positive.
    double init_scale = 65536.0;
    /// By how much the scale grows after `growth_interval` steps in a row without an overflow, at
    /// least 1; and shrinks at an overflow, between 0 and 1.
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
    /// False: the scale is 1 and stays so, nothing is checked and no step is skipped. So that a
    /// program needs no second path for formats with float32's range.
    bool enabled = true;
};

/// Dynamic loss scaling. Gradients of float16 are small numbers in a format whose small numbers
/// are coarse, or zero: so the loss, and by the chain rule every gradient, is multiplied by a
/// scale, and the optimizer divides by it again. A scale that was too large shows as inf or NaN
/// among the gradients; that step is skipped on every rank, and the next one has a smaller scale.
///
///     for each step:
///         forward; backward from loss * scaler.scale(); average the gradients
///         scaler.check(gradients);
///         scaler.agree(group).wait();
///         optimizer.step(scaler);   // divides by the scale, or leaves everything alone
///         scaler.update();
///
/// Everything that changes lies in one small record on the device: nothing here waits for a GPU
/// but the readers that say so, and a step that is captured into a CUDA graph replays with the
/// scale of the day. All ranks update alike, so their scales stay equal without being sent.
///
/// Gradients that were averaged over all ranks overflow on all of them, since inf and NaN survive
/// a sum; agree() is for what only one rank sees: shards of gradients, checks before the average,
/// gradients that travel in a wider format. Asking costs one float.
///
/// Used by one thread.
class GradScaler {
   public:
    /// Works on `device`, where the gradients must lie. Throws Error `invalid_argument` for options
    /// outside their bounds, or a GPU in a build without CUDA; `system` if CUDA refuses.
    explicit GradScaler(const GradScalerOptions& options = {}, Device device = {});
    ~GradScaler();
    GradScaler(GradScaler&&) noexcept;
    GradScaler& operator=(GradScaler&&) noexcept;
    GradScaler(const GradScaler&) = delete;
    GradScaler& operator=(const GradScaler&) = delete;

    /// The scale of this step. On a GPU this waits for `stream`.
    [[nodiscard]] double scale(Stream stream = {}) const;
    /// The same where it lies, one float32 on the device, for a kernel that begins the backward
    /// pass. Not to be written.
    [[nodiscard]] TensorView scale_tensor() const noexcept;

    /// Notes whether `gradient` (float32, float16 or bfloat16) holds inf or NaN. Once per tensor
    /// and step.
    void check(ConstTensorView gradient, Stream stream = {});
    /// check(), and divides by the scale in place, for what must see true gradients before the
    /// step, such as clipping. Float32 only: low precision is why they were scaled. After this the
    /// step does not divide again, so call it for all tensors or none.
    void unscale(TensorView gradient, Stream stream = {});
    /// For an overflow found by other means.
    void report_overflow(Stream stream = {});

    /// Lets an overflow on any rank count on every rank: the maximum of overflow_tensor(). On "cpu"
    /// wait for it before the step. Throws as ProcessGroup::all_reduce.
    [[nodiscard]] Work agree(ProcessGroup& group);
    /// One float32 on the device, not zero once this step has met an overflow. A sum over the ranks
    /// keeps that meaning, so it may ride along with a reduction of the caller's own.
    [[nodiscard]] TensorView overflow_tensor() const noexcept;
    /// Whether this step will be skipped. On a GPU this waits for `stream`.
    [[nodiscard]] bool overflowed(Stream stream = {}) const;

    /// Ends the step: chooses the next scale and forgets the overflow.
    void update(Stream stream = {});
    /// Steps skipped so far. On a GPU this waits for `stream`.
    [[nodiscard]] std::int64_t skipped_steps(Stream stream = {}) const;

    /// What makes up the state, on the device: the scale (float32), the steps without an overflow
    /// (int32), the steps skipped (int64). To start replicas equal, hand it to
    /// DistributedDataParallel among its buffers.
    [[nodiscard]] std::vector<TensorView> state() const;

    /// The state, under names that begin with `prefix`. Between steps; on a GPU in the order of
    /// `stream`, the one in which the steps are, and complete on return. `load` throws as
    /// Checkpoint's readers.
    void save(Checkpoint& checkpoint, std::string_view prefix = "scaler", Stream stream = {}) const;
    void load(const Checkpoint& checkpoint, std::string_view prefix = "scaler", Stream stream = {});

   private:
    friend class FusedOptimizer;
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
