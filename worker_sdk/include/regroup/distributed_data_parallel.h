// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/communication_hook.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace regroup {

namespace ddp {
class Reducer;
}

/// A trainable tensor. It outlives the wrapper, on the device of the group.
struct Parameter {
    TensorView value;
    /// Left out: the wrapper makes the memory, see `gradient(i)`. Costs no copy.
    /// With `data`: the caller's own memory of as many elements, at one copy in and one out a step.
    /// Without `data` but with a count and a dtype: the wrapper's memory, in that dtype, as for
    /// float32 gradients of bfloat16 values.
    TensorView gradient = {};
};

/// Gradients that travel together.
struct Bucket {
    std::vector<std::size_t> parameters{};  ///< In the order in which they lie in memory.
    DType dtype = DType::float32;
    std::size_t bytes = 0;  ///< What travels: each gradient is padded to a multiple of 64 bytes.

    friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct DataParallelOptions {
    /// Gradients travel in buckets of at most this many bytes; a larger one rides alone. Smaller
    /// buckets start earlier and overlap more of the backward pass; larger ones cost less per byte.
    /// A good start is a tenth of the model, and not below some tens of kilobytes.
    std::size_t bucket_bytes = std::size_t{25} << 20U;
    /// The first bucket of a step is at most this large, so that something is soon on its way.
    std::size_t first_bucket_bytes = std::size_t{1} << 20U;
    /// `avg`: every gradient becomes the mean over the ranks, right when all ranks hold equally
    /// many samples. `sum`: the sum, for gradients that are already weighted with their share of
    /// the global batch. Nothing else is accepted.
    ReduceOp reduction = ReduceOp::avg;
    /// The buckets are first laid out for a backward pass from the last parameter to the first, and
    /// once more at the end of the first step, in the order in which rank 0's gradients came.
    bool rebuild_buckets = true;
    /// Some parameters may get no gradient in a step, and other ones on other ranks: what is not
    /// reported by finish_step counts as zero. Costs a byte per parameter, and no overlap for the
    /// buckets behind an unused parameter unless `gradient_unused` tells of it early.
    bool unused_parameters = false;
    /// Every step ends with broadcast_buffers().
    bool broadcast_buffers_each_step = false;
    /// Exchanges the buckets instead of an all-reduce: low_precision_hook(DType::bfloat16), or
    /// one's own.
    std::shared_ptr<CommunicationHook> hook = {};
    /// On a GPU: where the caller's kernels compute gradients and use them. Reductions run beside
    /// it in a stream of the wrapper's own. While the wrapper exists this is the group's current
    /// stream (ProcessGroup::use_stream); then it is the one before again.
    Stream stream = {};
};

/// How well a step's communication was hidden behind its backward pass. On a GPU the two times are
/// zero: there, the profiler tells.
struct StepStatistics {
    std::uint64_t step = 0;  ///< Counted from 1; 0 before the first finish_step.
    std::size_t bytes = 0;   ///< Gradients reduced, with their padding.
    std::size_t bucket_count = 0;
    /// During how much of the step some bucket was on its way: the sum over the buckets of the time
    /// from its issue, or the end of the one before if that was later, to its end. Includes waiting
    /// for slower ranks.
    std::chrono::nanoseconds communication{};
    /// For how much of it finish_step waited.
    std::chrono::nanoseconds waited{};

    /// The share of the communication that cost nothing: 1 - waited / communication, in [0, 1].
    [[nodiscard]] double hidden() const noexcept;
};

/// Ranks whose replica is not that of the others.
struct ReplicaDifference {
    std::size_t parameter = 0;  ///< The first one that is not the same everywhere.
    /// The ranks that do not hold the value that most ranks hold; of equally common values, the
    /// one with the lowest rank counts as right.
    std::vector<std::uint32_t> ranks{};
};

/// Keeps the replicas of a model identical: starts them equal, and reduces the gradients of each
/// step over the group while the backward pass is still running. Knows nothing of layers, losses or
/// optimisers: it moves buffers.
///
///     DistributedDataParallel ddp(group, {{weight}, {bias}});
///     for each step:
///         ddp.zero_gradients();
///         forward; backward into ddp.gradient(i), calling ddp.gradient_ready(i) as each is final
///         ddp.finish_step();
///         apply the gradients, which are now the same on every rank
///
/// Gradients may become ready in any order, even in different orders on different ranks: buckets
/// are always reduced in the order of the plan. Other collectives on the same group between the
/// first gradient_ready and finish_step, those of another wrapper included, are allowed where every
/// rank issues them at the same point of the same order; give a model whose order may differ a
/// group of its own (ProcessGroup::new_group).
///
/// A step that ends in an exception cannot be taken back, since others have seen part of it:
/// destroy the wrapper, leave the round. Used by one thread at a time, which issues the group's
/// operations.
class DistributedDataParallel {
   public:
    /// Checks that all ranks registered the same parameters with the same options, makes the memory
    /// of the gradients (ProcessGroup::allocate), then gives every rank the values and buffers of
    /// rank 0. Blocks until all ranks have come. `buffers` are what a model carries without
    /// training it by gradient: running means, an optimiser's state. `group` and all tensors
    /// outlive the wrapper.
    ///
    /// Throws Error: `invalid_argument` if value and gradient do not match or lie on another device
    /// than the group's, or naming two ranks that differ; whatever the group throws.
    DistributedDataParallel(ProcessGroup& group, std::vector<Parameter> parameters,
                            std::vector<TensorView> buffers = {},
                            const DataParallelOptions& options = {});

    /// In the middle of a step the group is given up (ProcessGroup::abort), since the other ranks
    /// wait for buckets that will now never come.
    ~DistributedDataParallel();

    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    /// Where gradient `index` is to be written or added up, and where its reduction is found after
    /// finish_step: a part of a bucket, or the caller's own memory. Aligned to 64 bytes, zero at
    /// first. Moves at most once, in the first finish_step that reduces (`buckets_are_final`),
    /// with its contents; what was fetched before is then another parameter's place. Fetch it anew
    /// after that step, before the gradients are applied (FusedOptimizer::set_gradients) or a CUDA
    /// graph is captured, or set `rebuild_buckets` to false.
    [[nodiscard]] TensorView gradient(std::size_t index) const;
    /// Sets all gradients in the wrapper's memory to zero, at the speed of one memset.
    void zero_gradients();

    /// Gradient `index` is final: starts the reduction of its bucket once that is complete, without
    /// waiting for it. Until finish_step the gradient is not to be touched. Some tens of
    /// instructions if no bucket is complete by it. Throws Error: `invalid_argument` naming the
    /// index if it does not exist or was reported before in this step; whatever the group throws.
    void gradient_ready(std::size_t index);
    /// The same for one that gets no gradient in this step, and counts as zero, or as what no_sync
    /// steps have added up. Only with `unused_parameters`.
    void gradient_unused(std::size_t index);

    /// Waits for this step's buckets, after which every gradient is its reduction. Throws Error:
    /// `invalid_argument` naming gradients that were never reported, and the step can still be
    /// completed; whatever the group throws, after which gradients in the wrapper's memory hold
    /// unspecified values, those in the caller's are untouched, and none may be applied.
    ///
    /// On a GPU nothing waits on the host: what is put into `options.stream` from now on sees the
    /// reductions, and a peer's loss is thrown by a later call. Until then the stream goes on with
    /// the half-reduced gradients that an aborted operation leaves, and the optimiser's steps with
    /// them: before a checkpoint is written, or weights are used in any way that outlives this
    /// process, every rank does `group.barrier().wait()`, which throws if that has happened.
    void finish_step();

    /// The whole step at once, without overlap: every gradient is ready, then finish_step.
    void reduce_gradients();

    /// Until it ends, gradients add up on this rank alone: gradient_ready and finish_step do
    /// nothing. The next step without it reduces the sum.
    ///
    ///     { const auto guard = ddp.no_sync(); backward(first_half); }
    ///     backward(second_half); ddp.finish_step();
    ///
    /// Backward passes then add to the gradients instead of replacing them. May be nested. Every
    /// rank does the same. Throws Error `invalid_argument` in the middle of a step.
    class [[nodiscard]] NoSync {
       public:
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

       private:
        friend class DistributedDataParallel;
        explicit NoSync(ddp::Reducer& reducer);
        ddp::Reducer& reducer_;
    };
    NoSync no_sync();

    /// True if some rank had a gradient for `index` in the last finished step. If not, the gradient
    /// is zero, or untouched in the caller's own memory, and an optimiser should leave the
    /// parameter alone. Always true without `unused_parameters`. Throws Error `invalid_argument` if
    /// there is no such parameter.
    [[nodiscard]] bool was_used(std::size_t index) const;

    /// Gives every rank the parameters and buffers of `root`, or the buffers of rank 0, again.
    void broadcast_parameters(std::uint32_t root = 0);
    void broadcast_buffers();

    /// Compares the values of the parameters on all ranks, bit by bit through a 64-bit hash of
    /// each; every rank gets the same answer, and nothing if all are equal. Called by every rank.
    /// Costs one pass over the parameters, and copies them to the host from a GPU.
    [[nodiscard]] std::optional<ReplicaDifference> find_replica_difference();

    /// The plan, in order of reduction.
    [[nodiscard]] std::span<const Bucket> buckets() const noexcept;
    /// True once nothing moves any more: after the first step that reduced.
    [[nodiscard]] bool buckets_are_final() const noexcept;
    /// Bucket `index` as one tensor, padding included, which is zero: for what treats all gradients
    /// alike (scale, clip, look for infinities) in few calls.
    [[nodiscard]] TensorView bucket_gradients(std::size_t index) const;
    /// The memory that holds all buckets; a copy of the handle keeps `gradient(i)` valid beyond the
    /// wrapper.
    [[nodiscard]] const Buffer& gradient_memory() const noexcept;

    /// Of the last step that reduced.
    [[nodiscard]] StepStatistics statistics() const noexcept;

   private:
    std::unique_ptr<ddp::Reducer> reducer_;
};

}  // namespace regroup
