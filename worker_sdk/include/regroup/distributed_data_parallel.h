// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <span>
#include <vector>

namespace regroup {

/// A trainable tensor and its gradient: same count and dtype; both outlive the wrapper.
struct Parameter {
    TensorView value;
    TensorView gradient;
};

/// Parameters [first, last) whose gradients travel together.
struct Bucket {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t bytes = 0;

    friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// Packs gradients from last to first, the order in which a backward pass yields them, into buckets
/// of at most `bytes_max`; never mixes dtypes; an oversized gradient rides alone. The buckets come
/// in the order in which they fill. Pure and deterministic, so that all ranks agree without
/// talking.
[[nodiscard]] std::vector<Bucket> plan_buckets(std::span<const Parameter> parameters,
                                               std::size_t bytes_max);

struct DataParallelOptions {
    /// Gradients travel in buckets of at most this many bytes. Smaller ones start earlier and
    /// overlap more of the backward pass; larger ones cost less per byte. A good start is a tenth
    /// of the model, and not below some tens of kilobytes.
    std::size_t bucket_bytes = std::size_t{25} << 20U;
    /// `avg`: every gradient becomes the mean over the ranks, right when all ranks hold equally
    /// many samples. `sum`: the sum, for gradients that are already weighted with their share of
    /// the global batch. Nothing else is accepted.
    ReduceOp reduction = ReduceOp::avg;
};

/// Keeps the replicas of a model identical: starts them equal, and reduces the gradients of each
/// step over the group while the backward pass is still running. Knows nothing of layers, losses or
/// optimisers: it moves buffers.
///
///     DistributedDataParallel ddp(group, {{weight, weight_gradient}, {bias, bias_gradient}});
///     for each step:
///         forward; backward, calling ddp.gradient_ready(i) as gradient i becomes final
///         ddp.finish_step();
///         apply the gradients, which are now the same on every rank
///
/// Gradients may become ready in any order, even in different orders on different ranks: buckets
/// are always reduced in the order of the plan. Collectives of the caller's own between the first
/// gradient_ready and finish_step are allowed only where every rank issues them at the same point
/// of the same order.
///
/// Costs one copy of all gradients. Used by one thread, the one that issues the group's operations.
class DistributedDataParallel {
   public:
    /// Checks that all ranks registered the same parameters, then gives every rank the values and
    /// buffers of rank 0. Blocks until all ranks have come. `buffers` are what a model carries
    /// without training it by gradient: running means, an optimiser's state. `group` and all
    /// tensors outlive the wrapper.
    ///
    /// Throws Error: `invalid_argument` if value and gradient do not match, or naming two ranks
    /// whose parameters differ; whatever the group throws.
    DistributedDataParallel(ProcessGroup& group, std::vector<Parameter> parameters,
                            std::vector<TensorView> buffers = {},
                            const DataParallelOptions& options = {});

    /// In the middle of a step the group is given up (ProcessGroup::abort), since the other ranks
    /// wait for buckets that will now never come.
    ~DistributedDataParallel();

    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    /// Gradient `index` is final: takes a copy, and starts the reduction of its bucket once that is
    /// complete, without waiting for it. Throws Error: `invalid_argument` naming the index if it
    /// does not exist or was reported before in this step; whatever the group throws.
    void gradient_ready(std::size_t index);

    /// Waits for this step's buckets, then replaces every gradient by its reduction. If it throws,
    /// no gradient has been touched and none may be applied: `invalid_argument` names gradients
    /// that were never reported, and the step can still be completed; after an Error of the group,
    /// leave the round.
    void finish_step();

    /// The whole step at once, without overlap: every gradient is ready, then finish_step.
    void reduce_gradients();

    /// Gives every rank the buffers of rank 0 again.
    void broadcast_buffers();

    /// The plan, in order of reduction.
    [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return plan_; }

   private:
    struct Reduction {
        std::vector<std::byte> gradients;
        std::size_t missing_count = 0;
        Work work;
    };

    /// Where gradient `index` lies in its bucket.
    struct Place {
        std::size_t bucket = 0;
        std::size_t offset = 0;
    };

    void begin_step();
    void start_complete_buckets();

    ProcessGroup& group_;
    const std::vector<Parameter> parameters_;
    const std::vector<TensorView> buffers_;
    const DataParallelOptions options_;
    const std::vector<Bucket> plan_;
    std::vector<Place> places_;          // by parameter
    std::vector<bool> ready_;            // by parameter
    std::vector<Reduction> reductions_;  // by bucket
    std::size_t started_count_ = 0;      // buckets [0, started_count_) are in flight
};

}  // namespace regroup
