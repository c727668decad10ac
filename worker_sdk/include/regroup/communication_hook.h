// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <memory>
#include <span>

namespace regroup {

/// What a hook is given: one bucket of gradients, complete on this rank.
struct GradientBucket {
    std::size_t index = 0;  ///< In the order of reduction; always the same bucket of this layout.
    bool is_last = false;
    /// The parameters whose gradients these are, in the order in which they lie in memory.
    std::span<const std::size_t> parameters{};
    /// All of them as one tensor: each begins at a multiple of 64 bytes, with zeroes in between.
    TensorView gradients{};
    ReduceOp reduction = ReduceOp::avg;  ///< What the result must be: `avg` or `sum`.
    /// On a GPU: the stream of the reductions, which is also the group's current one.
    Stream stream{};
};

/// How the gradients of a bucket become the same on all ranks: an all-reduce unless a hook does it
/// in its own way, for instance compressed. One hook serves one DistributedDataParallel, whose
/// thread calls it.
///
///     class Halved : public CommunicationHook { ...
///         Work start(ProcessGroup& group, const GradientBucket& bucket) override {
///             pack(bucket.gradients, packed_[bucket.index]);
///             return group.all_reduce(packed_[bucket.index], ReduceOp::sum);
///         }
///         void finish(ProcessGroup&, const GradientBucket& bucket) override {
///             unpack(packed_[bucket.index], bucket.gradients);
///         }
///     };
class CommunicationHook {
   public:
    CommunicationHook() = default;
    virtual ~CommunicationHook() = default;
    CommunicationHook(const CommunicationHook&) = delete;
    CommunicationHook& operator=(const CommunicationHook&) = delete;

    /// The buckets that there will be: before the first step, and again if they are laid out anew
    /// after it. The place for memory (ProcessGroup::allocate). The same on all ranks.
    virtual void prepare(ProcessGroup& group, std::span<const GradientBucket> buckets);

    /// Begins the exchange of `bucket` and returns the operation to wait for, without waiting for
    /// anything itself: the backward pass is going on. Must issue the same operations on all ranks.
    [[nodiscard]] virtual Work start(ProcessGroup& group, const GradientBucket& bucket) = 0;

    /// Leaves the result in `bucket.gradients`, bit-identical on all ranks. On "cpu" called when
    /// the operation is complete, buckets in order, and may issue and wait for more. On "nccl"
    /// called right after `start`, and puts its work into the stream behind it.
    virtual void finish(ProcessGroup& group, const GradientBucket& bucket) = 0;
};

/// The built-in hook: float32 and float64 gradients travel and are added as `wire`, `float16` or
/// `bfloat16`, at half or a quarter of the bytes; all others travel as they are. An average is
/// divided before it is narrowed, so that float16 does not overflow where the average would not.
/// Each value is rounded once on each rank and once for each addition. Throws Error
/// `invalid_argument` for another wire.
[[nodiscard]] std::shared_ptr<CommunicationHook> low_precision_hook(DType wire);

}  // namespace regroup
