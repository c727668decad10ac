// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>
#include <regroup/distributed_data_parallel.h>
#include <regroup/fused_optimizer.h>
#include <regroup/grad_scaler.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace regroup {

struct ShardOptions {
    /// A second rank holds and updates each shard, too: the one that is half the world further. The
    /// state then survives the loss of any one rank, and of one node if each node has as many
    /// ranks. Costs twice the memory for moments and twice the arithmetic, but no communication.
    bool replicate = false;
};

/// A FusedOptimizer whose moments are divided among the ranks (ZeRO, stage 1): each rank of N holds
/// 1/N of them, updates 1/N of the parameters, and gets the other parameters from the ranks that
/// have updated them. The bits are those of a FusedOptimizer on each rank.
///
///     std::vector<float> weights(100000);
///     regroup::ShardedOptimizer optimizer({{.master = std::span(weights)}},
///                                         regroup::AdamOptions{.learning_rate = 1e-3});
///     optimizer.shard(group);
///     regroup::DistributedDataParallel ddp(group, {{std::span(weights)}});
///     optimizer.set_gradients(ddp);
///     for (int step = 0; step < 100; ++step) {
///         ddp.zero_gradients();
///         // Forward and backward pass into ddp.gradient(0).
///         ddp.reduce_gradients();
///         regroup::clip_grad_norm(ddp.gradients(), 1.0);
///         optimizer.step();
///     }
///
/// A shard is a range of the elements of all tensors, one tensor after the other. It begins at a
/// multiple of 4,096 elements of a tensor. So shards differ by 8,192 elements at most, and
/// clip_grad_norm over shards has the bits of that over the whole.
///
/// Owns the moments of its shards. The caller owns master, gradient and shadow, which have all
/// elements on each rank and outlive the optimizer. Every rank has the same tensors, options and
/// masters. The calls that are named collective are made by all ranks of the group, in the same
/// order among its collectives, and block. On a GPU, `step`, `reduce_gradients` and `apply` only
/// put their work into `stream`. `prepare` also waits for it, since no rank may apply a step that
/// has failed.
///
/// Used by one thread.
class ShardedOptimizer {
   public:
    /// Local. Throws Error as FusedOptimizer does.
    ShardedOptimizer(const std::vector<OptimizerTensors>& tensors, const SgdOptions& options,
                     const ShardOptions& shards = {});
    ShardedOptimizer(const std::vector<OptimizerTensors>& tensors, const AdamOptions& options,
                     const ShardOptions& shards = {});
    ~ShardedOptimizer();
    ShardedOptimizer(ShardedOptimizer&&) noexcept;
    ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;
    ShardedOptimizer(const ShardedOptimizer&) = delete;
    ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

    /// Divides the state among the ranks of `group`, and uses the group from now on. It outlives
    /// the use. A collective, required before the first step and for each new group; in an
    /// ElasticLoop, call it in `on_round`. The state comes from the ranks that have done most
    /// steps, wherever its parts are: in shards of an earlier group, of any size, or in a
    /// checkpoint that was loaded. If no rank has a state, it begins anew. Rolls back a step that
    /// was prepared but not applied, unless another rank has applied it; then it is applied here,
    /// too.
    ///
    /// `leaving`: ranks of the group that are to hold nothing, as they will leave (see
    /// ElasticCallbacks::on_departure). If all leave, nothing changes.
    ///
    /// On a GPU it waits for the collectives of the last step. Keep their group until then: a group
    /// that is destroyed gives them up, and the state is lost. It uses CUDA's default stream:
    /// synchronise with the stream of the steps before.
    ///
    /// Throws Error on all ranks: `system` if a part of the state is lost with its rank, naming the
    /// rank; all ranks must then begin from a checkpoint. `invalid_argument` if the ranks have
    /// other tensors or options, or the group is on another device. Only the learning rate may
    /// differ: all ranks get that of the state, or of rank 0 if there is none. Otherwise as the
    /// group; then `shard` may be called with another group, and nothing is lost that the ranks
    /// held.
    void shard(ProcessGroup& group, std::span<const std::uint32_t> leaving = {});

    /// Updates this rank's shard, and gathers the masters of the others; then writes the shadows. A
    /// collective. Throws Error: `invalid_argument` if `shard` was not called, or a gradient is
    /// missing; otherwise as the group. After an error of the group the masters of this rank are a
    /// mixture, and its state is lost; `prepare` does not have this weakness.
    ///
    /// On a GPU a step may fail after its call. Then the next collective call throws; `shard` says
    /// that the state is lost. `save` and `shard` wait until they know.
    void step(Stream stream = {});
    /// The same with scaled gradients, as FusedOptimizer::step. The ranks must agree on overflows
    /// (GradScaler::agree) if they do not have the same gradients.
    void step(const GradScaler& scaler, Stream stream = {});

    /// A step in two parts, for ElasticLoop, where all ranks apply a step or none does: `prepare`
    /// is a collective, and changes no master and no shadow; `apply` is local. If the step is lost
    /// in between, the next `shard` or `prepare` rolls it back.
    ///
    ///     // In on_step of an ElasticLoop, with ddp and optimizer of this round.
    ///     const auto on_step = [&](regroup::ElasticStep& step) {
    ///         ddp.zero_gradients();
    ///         // Forward and backward pass into ddp.gradient(0).
    ///         ddp.reduce_gradients();
    ///         sharded.prepare();
    ///         step.commit([&] { sharded.apply(); });
    ///     };
    ///
    /// Takes memory for a second copy of the masters, and of this rank's state. Throws Error as
    /// `step`; `apply` throws `invalid_argument` if nothing is prepared.
    void prepare(Stream stream = {});
    void prepare(const GradScaler& scaler, Stream stream = {});
    void apply(Stream stream = {});

    /// For gradients that were not reduced, instead of an all-reduce: reduces them over the ranks,
    /// and leaves each rank the part that it needs, in memory of the optimizer. The next `step` or
    /// `prepare` uses that part. The gradients themselves do not change. With the all-gather of the
    /// step this moves as many bytes as an all-reduce. A collective.
    ///
    /// Returns the reduced gradients of this rank's shard. To clip them, call clip_grad_norm with
    /// `shards_of`. With a GradScaler, `check` or `unscale` them, and call GradScaler::agree. Valid
    /// until the next `shard`.
    ///
    /// `reduction`: `avg` or `sum`. Throws Error `invalid_argument` for another one, with
    /// `replicate`, or if a gradient is missing; otherwise as the group.
    std::vector<TensorView> reduce_gradients(ReduceOp reduction = ReduceOp::avg,
                                             Stream stream = {});

    /// As FusedOptimizer's, with gradients of all elements. Local.
    void set_gradients(std::span<const ConstTensorView> gradients);
    void set_gradients(const DistributedDataParallel& ddp);

    /// Takes effect with the next step, on this rank: call it on all ranks.
    void set_learning_rate(double learning_rate, Stream stream = {});
    [[nodiscard]] double learning_rate() const noexcept;

    /// Rounds all masters into their shadows. Call it at the start, and after masters were loaded
    /// or received from another rank. Local.
    void write_shadows(Stream stream = {});

    /// Steps done, without skipped ones; 0 before `shard`. On a GPU this waits for `stream`.
    [[nodiscard]] std::int64_t step_count(Stream stream = {}) const;

    /// The tensors of this rank's state, on the device: for each shard that it holds, as
    /// FusedOptimizer::state. They differ by rank: do not register them with an ElasticLoop, and do
    /// not broadcast them. Valid until the next `shard`.
    [[nodiscard]] std::vector<TensorView> state() const;

    /// Gathers the whole state on `root` and puts it into that rank's checkpoint, under the names
    /// that FusedOptimizer::save uses; the checkpoints of the other ranks do not change. A
    /// collective. `root` needs host memory for all moments. Either optimizer loads what the other
    /// one has saved, and the world size may be another one. Throws Error `invalid_argument` if
    /// `shard` was not called, or a step is prepared and not applied; otherwise as the group. On a
    /// GPU it uses CUDA's default stream, as `shard` does.
    void save(Checkpoint& checkpoint, std::string_view prefix = "optimizer",
              std::uint32_t root = 0) const;

    /// Takes the state and the learning rate from a checkpoint, instead of the state that this rank
    /// holds. Takes effect with the next `shard`, which gives each rank its part: so one rank with
    /// the checkpoint is enough. A rank that loads an older state than others hold gets theirs.
    /// Local. Throws as FusedOptimizer::load, and then changes nothing.
    void load(const Checkpoint& checkpoint, std::string_view prefix = "optimizer");

   private:
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
