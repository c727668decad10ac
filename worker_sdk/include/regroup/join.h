// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstdint>
#include <vector>

namespace regroup {

struct JoinOptions {
    /// For the reduction `avg`. True: the gradients of each step are divided by the number of ranks
    /// of the group, so that each sample counts the same in all steps. False: by the number of
    /// ranks that have input in this step, so that steps with few ranks are as large as others.
    /// While all ranks have input, both give the same bits. `false` cannot be combined with a
    /// communication hook. The reduction `sum` divides nothing in either case.
    bool divide_by_initial_world_size = true;
    /// As soon as some ranks have input and others have none, `next` throws on all ranks.
    bool throw_on_early_termination = false;
};

/// Trains with different numbers of batches on the ranks of a DistributedDataParallel. A rank that
/// has no more input takes part in the steps of the others with gradients of zero, and applies the
/// reduced gradients as the others do. So all ranks have the same parameters and the same state of
/// the optimizer after each step, and the training ends on all ranks when the last one has no more
/// input.
///
///     std::vector<float> weights(1000);
///     std::vector<float> batches[3];  // As many as this rank has.
///     regroup::DistributedDataParallel ddp(group, {{std::span(weights)}});
///     regroup::FusedOptimizer optimizer({{.master = std::span(weights)}},
///                                       regroup::SgdOptions{.learning_rate = 0.1});
///     optimizer.set_gradients(ddp);
///     regroup::Join join(ddp);
///     for (std::size_t at = 0; join.next(at < std::size(batches)); ++at) {
///         ddp.zero_gradients();
///         if (join.has_input()) {
///             // Forward and backward pass of batches[at] into ddp.gradient(0).
///             ddp.gradient_ready(0);
///         }
///         ddp.finish_step();
///         optimizer.step();
///     }
///
/// It does the work of torch.distributed.algorithms.Join. There, ranks without input do not step
/// their optimizers, and get the parameters at the end.
///
/// - Without input a rank calls `finish_step` or `reduce_gradients`, which sends zeroes for the
///   gradients that it has not reported. If it has accumulated gradients under `no_sync` in this
///   step, it sends their sum.
/// - Other collectives of a step, for instance those of sync_batch_statistics in the forward pass,
///   must be called by all ranks: those without input give an empty batch.
/// - The order of buckets is learned from the first rank with input, and
///   `broadcast_buffers_each_step` sends the buffers of that rank.
/// - `was_used` counts only ranks with input.
/// - Micro-batches that are accumulated under `no_sync` are one input: call `next` once before
/// them.
///
/// `next` costs an all_gather of 8 bytes from each rank, for which the host waits. Construct it
/// outside of steps. Used by the thread of the wrapper, which outlives it.
class Join {
   public:
    /// Local. Throws Error `invalid_argument` if the options do not fit those of the wrapper.
    explicit Join(DistributedDataParallel& ddp, const JoinOptions& options = {});

    /// Begins a step, and tells the ranks whether this one has input for it. Returns true if any
    /// rank has; otherwise the training is over, on all ranks. Blocks until every rank has called
    /// it. In an ElasticLoop, `finish` the loop if it returns false; a step that is repeated calls
    /// it again.
    ///
    /// Throws Error: `invalid_argument` in the middle of a step or under `no_sync`, if the ranks
    /// have other options, naming one, or with `throw_on_early_termination`, on all ranks, naming
    /// those without input; otherwise as the group.
    bool next(bool has_input);

    /// Whether this rank has input in this step: the argument of the last `next`.
    [[nodiscard]] bool has_input() const noexcept { return has_input_; }
    /// The ranks that have input in this step, in order. The same on all ranks.
    [[nodiscard]] const std::vector<std::uint32_t>& ranks_with_input() const noexcept {
        return ranks_with_input_;
    }

   private:
    ddp::Reducer& reducer_;
    const JoinOptions options_;
    bool has_input_ = false;
    std::vector<std::uint32_t> ranks_with_input_;
};

}  // namespace regroup
