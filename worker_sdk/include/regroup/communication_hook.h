// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <memory>
#include <span>

namespace regroup {

/// One bucket of gradients, complete on this rank: the argument of a hook.
struct GradientBucket {
    std::size_t index = 0;  ///< In the order of reduction; always the same bucket of this layout.
    bool is_last = false;
    /// The parameters whose gradients these are, in the order in which they lie in memory.
    std::span<const std::size_t> parameters{};
    /// All of them as one tensor: each begins at a multiple of 64 bytes, with zeroes in between.
    TensorView gradients{};
    ReduceOp reduction = ReduceOp::avg;  ///< The result must be the `avg` or the `sum`.
    /// On a GPU: the stream of the reductions, which is also the group's current one.
    Stream stream{};
};

/// Replaces the all-reduce of a bucket, for instance to compress the gradients. One hook serves one
/// DistributedDataParallel, whose thread calls it.
///
///     class Clipped : public regroup::CommunicationHook {
///        public:
///         regroup::Work start(regroup::ProcessGroup& group,
///                             const regroup::GradientBucket& bucket) override {
///             auto* const values = static_cast<float*>(bucket.gradients.data);
///             for (std::size_t i = 0; i < bucket.gradients.count; ++i) {
///                 values[i] = std::clamp(values[i], -1.0F, 1.0F);
///             }
///             return group.all_reduce(bucket.gradients, bucket.reduction);
///         }
///         void finish(regroup::ProcessGroup&, const regroup::GradientBucket&) override {}
///     };
class CommunicationHook {
   public:
    CommunicationHook() = default;
    virtual ~CommunicationHook() = default;
    CommunicationHook(const CommunicationHook&) = delete;
    CommunicationHook& operator=(const CommunicationHook&) = delete;

    /// Tells the hook all buckets: before the first step, and again if the layout changes after it.
    /// Allocate memory here (ProcessGroup::allocate). The buckets are the same on all ranks.
    virtual void prepare(ProcessGroup& group, std::span<const GradientBucket> buckets);

    /// Begins the exchange of `bucket` and returns the operation to wait for. Must not wait, since
    /// the backward pass is going on. Must issue the same operations on all ranks.
    [[nodiscard]] virtual Work start(ProcessGroup& group, const GradientBucket& bucket) = 0;

    /// Leaves the result in `bucket.gradients`, bit-identical on all ranks. On "cpu" it is called
    /// when the operation is complete, in the order of the buckets, and may issue and wait for
    /// more. On "nccl" it is called right after `start`, and puts its work into the same stream.
    virtual void finish(ProcessGroup& group, const GradientBucket& bucket) = 0;
};

/// The built-in hook: it sends and adds float32 and float64 gradients as `wire` (`float16` or
/// `bfloat16`), at half or a quarter of the bytes, and all other dtypes unchanged. It divides an
/// average before it narrows the values, so that float16 does not overflow where the average does
/// not. Each value is rounded once on each rank and once for each addition. Throws Error
/// `invalid_argument` for another wire.
[[nodiscard]] std::shared_ptr<CommunicationHook> low_precision_hook(DType wire);

}  // namespace regroup
