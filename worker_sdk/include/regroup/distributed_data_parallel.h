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
struct Reducer;
}

/// A trainable tensor. It outlives the wrapper, on the device of the group.
struct Parameter {
    TensorView value;
    /// Left out: the wrapper allocates the memory, see `gradient(i)`. Costs no copy.
    ///
    /// With `data`: the caller's memory of as many elements. Costs one copy in and one out per
    /// step.
    ///
    /// Without `data` but with a count and a dtype: the wrapper's memory in that dtype, for
    /// instance float32 gradients of bfloat16 values.
    TensorView gradient = {};
};

/// Gradients that are reduced in one operation.
struct Bucket {
    std::vector<std::size_t> parameters{};  ///< In the order in which they lie in memory.
    DType dtype = DType::float32;
    std::size_t bytes = 0;  ///< Each gradient is padded to a multiple of 64 bytes.

    friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct DataParallelOptions {
    /// Gradients are reduced in buckets of at most this many bytes; a larger gradient has its own
    /// bucket. Smaller buckets start earlier and overlap more of the backward pass; larger ones
    /// cost less per byte. A good start is a tenth of the model, but at least some tens of
    /// kilobytes.
    std::size_t bucket_bytes = std::size_t{25} << 20U;
    /// The first bucket of a step is at most this large, so that the communication begins early.
    std::size_t first_bucket_bytes = std::size_t{1} << 20U;
    /// `avg`: every gradient becomes the mean over the ranks; correct when all ranks have equally
    /// many samples. `sum`: the sum, for gradients that are already weighted with their share of
    /// the global batch. Other operators are refused.
    ReduceOp reduction = ReduceOp::avg;
    /// The first plan assumes a backward pass from the last parameter to the first. The end of the
    /// first step changes it to the order in which the gradients of rank 0 became ready. The
    /// gradients stay where they are. So if a bucket of the new plan holds gradients that are not
    /// neighbours in memory, each step copies them to the bucket and back, and the bucket takes its
    /// own memory. It costs nothing if the first order was right.
    ///
    /// Over TCP and NCCL, the place of a gradient in its bucket decides how its sum is rounded. So
    /// an ElasticLoop keeps this order: the n-th wrapper of a round, over the group of the round or
    /// a sub-group, begins with the order of the n-th wrapper of the round before, also in new
    /// processes. A job that begins again from a checkpoint learns it anew, as does a program
    /// without the loop. With `false` all have the same plan.
    bool rebuild_buckets = true;
    /// Allows parameters without a gradient in a step, also different ones on different ranks. A
    /// gradient that is not reported before finish_step counts as zero. Costs a byte per parameter.
    /// Buckets behind an unused parameter have no overlap, unless `gradient_unused` reports it
    /// early.
    bool unused_parameters = false;
    /// Every step ends with broadcast_buffers().
    bool broadcast_buffers_each_step = false;
    /// Replaces the all-reduce of the buckets: low_precision_hook(DType::bfloat16), or a hook of
    /// the caller.
    std::shared_ptr<CommunicationHook> hook = {};
    /// On a GPU: the stream in which the caller's kernels compute and use gradients. Reductions run
    /// in a separate stream of the wrapper. While the wrapper exists this is the group's current
    /// stream (ProcessGroup::use_stream); afterwards the group has its previous stream again.
    Stream stream = {};
};

/// How well a step's communication was hidden behind its backward pass. On a GPU both times are
/// zero: use a profiler there.
struct StepStatistics {
    std::uint64_t step = 0;  ///< Counted from 1; 0 before the first finish_step.
    std::size_t bytes = 0;   ///< Gradients reduced, with their padding.
    std::size_t bucket_count = 0;
    /// The time during which at least one bucket was being reduced. It is a sum over the buckets:
    /// from the issue of the bucket, or the end of the previous one if that was later, to its end.
    /// Includes waiting for slower ranks.
    std::chrono::nanoseconds communication{};
    /// The part of it that finish_step waited.
    std::chrono::nanoseconds waited{};

    /// The part of the communication that cost no time: 1 - waited / communication, in [0, 1].
    [[nodiscard]] double hidden() const noexcept;
};

/// The result of find_replica_difference().
struct ReplicaDifference {
    std::size_t parameter = 0;  ///< The first one that differs among the ranks.
    /// The ranks whose value is not the most common one. If several values are equally common, the
    /// one of the lowest rank counts as correct.
    std::vector<std::uint32_t> ranks{};
};

/// Keeps the replicas of a model identical: it starts them equal, and reduces the gradients of each
/// step over the group while the backward pass is still running. It handles buffers only, and needs
/// no layers, losses or optimisers.
///
///     std::vector<float> weights(1000);
///     regroup::DistributedDataParallel ddp(group, {{std::span(weights)}});
///     for (int step = 0; step < 100; ++step) {
///         ddp.zero_gradients();
///         auto* const gradient = static_cast<float*>(ddp.gradient(0).data);
///         for (std::size_t i = 0; i < weights.size(); ++i) {
///             gradient[i] += weights[i];  // Forward and backward.
///         }
///         ddp.gradient_ready(0);  // Starts the reduction of its bucket.
///         ddp.finish_step();
///         for (std::size_t i = 0; i < weights.size(); ++i) {
///             weights[i] -= 0.1F * gradient[i];  // The same on every rank.
///         }
///     }
///
/// Gradients may become ready in any order, also in different orders on different ranks: buckets
/// are always reduced in the order of the plan. The group may be used for other collectives between
/// the first gradient_ready and finish_step, also by another wrapper, if every rank issues them at
/// the same point of the order. If the order may differ, give the model a group of its own
/// (ProcessGroup::new_group).
///
/// A step that ends in an exception cannot be undone, since other ranks may have seen part of it:
/// destroy the wrapper and leave the round. Used by one thread at a time, which also issues the
/// group's operations.
class DistributedDataParallel {
   public:
    /// Checks that all ranks registered the same parameters with the same options, allocates the
    /// gradients (ProcessGroup::allocate), and gives every rank the values and buffers of rank 0.
    /// Blocks until all ranks have called it. `buffers` are tensors that are not trained by
    /// gradients: running means, an optimiser's state. `group` and all tensors must outlive the
    /// wrapper.
    ///
    /// Throws Error: `invalid_argument` if value and gradient do not match or lie on another device
    /// than the group's, or if two ranks differ, naming both; otherwise as the group.
    DistributedDataParallel(ProcessGroup& group, std::vector<Parameter> parameters,
                            std::vector<TensorView> buffers = {},
                            const DataParallelOptions& options = {});

    /// In the middle of a step it aborts the group (ProcessGroup::abort), since the other ranks
    /// wait for buckets that this rank will not send.
    ~DistributedDataParallel();

    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    /// The place of gradient `index`: write or accumulate it there; after finish_step it holds the
    /// reduction. Stays there as long as the wrapper lives. It is in the wrapper's memory, aligned
    /// to 64 bytes and zero at first, or it is the caller's own memory.
    [[nodiscard]] TensorView gradient(std::size_t index) const;
    /// All gradients in few tensors: one for each dtype in the wrapper's memory, with padding that
    /// is zero, then those in the caller's own memory. For operations on all gradients, such as
    /// clip_grad_norm or GradScaler::check.
    [[nodiscard]] std::vector<TensorView> gradients() const;
    /// Parameters that were registered.
    [[nodiscard]] std::size_t parameter_count() const noexcept;
    /// Sets all gradients in the wrapper's memory to zero, at the speed of one memset.
    void zero_gradients();

    /// Reports that gradient `index` is final. Starts the reduction of its bucket if all gradients
    /// of the bucket are final, without waiting for it. Do not access the gradient until
    /// finish_step. Costs some tens of instructions if no bucket becomes complete. Throws Error:
    /// `invalid_argument` naming the index if it does not exist or was reported before in this
    /// step; otherwise as the group.
    void gradient_ready(std::size_t index);
    /// Reports that parameter `index` gets no gradient in this step. The gradient counts as zero,
    /// or as the sum of the no_sync steps. Only with `unused_parameters`.
    void gradient_unused(std::size_t index);

    /// Waits for this step's buckets; then every gradient holds its reduction. Throws Error:
    /// `invalid_argument` naming gradients that were not reported (the step can still be
    /// completed); otherwise as the group. After an error of the group, gradients in the wrapper's
    /// memory hold unspecified values, gradients in the caller's memory are unchanged, and none may
    /// be applied.
    ///
    /// On a GPU the host does not wait: work that is put into `options.stream` afterwards sees the
    /// reductions. If a peer is lost, the next call throws that starts a bucket or finishes a step.
    /// Until then the stream, with the optimiser's steps in it, uses the half-reduced gradients
    /// that an aborted operation leaves. Therefore every rank calls `group.barrier().wait()`, which
    /// throws in this case, before it writes a checkpoint or uses the weights outside this process.
    void finish_step();

    /// Carries out the whole step without overlap: reports every gradient, then calls finish_step.
    /// On a rank without input (see Join) it reports none, so that they count as zero.
    void reduce_gradients();

    /// While a NoSync lives, gradients accumulate on this rank alone: gradient_ready and
    /// finish_step do nothing. The next step without it reduces the sum.
    ///
    ///     const auto backward = [&](float gradient) {
    ///         static_cast<float*>(ddp.gradient(0).data)[0] += gradient;
    ///         ddp.gradient_ready(0);
    ///     };
    ///     {
    ///         const auto guard = ddp.no_sync();
    ///         backward(1);
    ///     }
    ///     backward(2);
    ///     ddp.finish_step();
    ///
    /// The backward pass must add to the gradients, not replace them. May be nested. Every rank
    /// does the same. Throws Error `invalid_argument` in the middle of a step.
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

    /// True if any rank had a gradient for `index` in the last finished step. Otherwise the
    /// gradient is zero (unchanged in the caller's own memory), and an optimiser should skip the
    /// parameter. Always true without `unused_parameters`. Throws Error `invalid_argument` if there
    /// is no such parameter.
    [[nodiscard]] bool was_used(std::size_t index) const;

    /// Gives every rank the parameters and buffers of `root` again.
    void broadcast_parameters(std::uint32_t root = 0);
    /// Gives every rank the buffers of rank 0 again.
    void broadcast_buffers();

    /// Compares the parameters of all ranks by a 64-bit hash of the bits of each. Returns the same
    /// result on every rank, and nullopt if all are equal. Called by every rank. Costs one pass
    /// over the parameters, and a copy to the host from a GPU. The wrapper never calls it by
    /// itself: a program without ElasticLoop calls it before it saves or uses what it has trained.
    [[nodiscard]] std::optional<ReplicaDifference> find_replica_difference();

    /// The plan, in order of reduction.
    [[nodiscard]] std::span<const Bucket> buckets() const noexcept;
    /// True when the plan no longer changes: after the first step that reduced, and from the start
    /// if an ElasticLoop knows the order.
    [[nodiscard]] bool buckets_are_final() const noexcept;
    /// The wrapper's memory for gradients. A copy of the handle keeps `gradient(i)` valid after the
    /// wrapper is destroyed.
    [[nodiscard]] const Buffer& gradient_memory() const noexcept;

    /// Of the last step that reduced.
    [[nodiscard]] StepStatistics statistics() const noexcept;

   private:
    friend class Join;
    std::unique_ptr<ddp::Reducer> reducer_;
};

}  // namespace regroup
