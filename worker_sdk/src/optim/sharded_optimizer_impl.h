// SPDX-License-Identifier: Apache-2.0
//
// The numbering of shard_plan.h makes each shard's moments a range of those of the whole. So a new
// division of the state, a checkpoint and the loss of a rank are all questions about ranges.
#pragma once

#include <regroup/cuda.h>
#include <regroup/sharded_optimizer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "worker_sdk/src/optim/shard_plan.h"

namespace regroup::optim {

/// Ranges of its state that a rank can offer the others; more are not looked at.
inline constexpr std::size_t kOffersMax = 8;

/// Moments of one range, wherever they are.
struct Piece {
    Range range{};
    std::vector<TensorView> moments{};
};

/// A shard that this rank holds.
struct Shard {
    Range range{};
    FusedOptimizer optimizer;
    std::vector<Buffer> before{};  ///< The state before a step that is prepared.
    Buffer masters{};              ///< The same of the masters, while the step is computed.

    [[nodiscard]] Piece piece() const {
        const std::vector<TensorView> state = optimizer.state();
        return {range, {state.begin() + 1, state.end()}};
    }
};

/// A whole state from a checkpoint, in host memory.
struct Loaded {
    std::vector<std::vector<float>> moments{};
    std::int64_t version = 0;
    std::int64_t step_count = 0;
};

/// A rank's message to the others about its state, before they divide it anew.
struct ShardClaim {
    std::uint64_t layout = 0;    ///< Hash of tensors and options.
    std::int64_t holds = 0;      ///< 1 if it has a part of a state, or its part is lost.
    std::int64_t lost = 0;       ///< 1 if a step has failed halfway.
    std::int64_t version = 0;    ///< Applied steps, with skipped ones.
    std::int64_t can_apply = 0;  ///< 1 if one more step is prepared.
    std::int64_t step_count = 0;
    std::uint64_t learning_rate = 0;  ///< The bits of a double.
    std::uint64_t former_size = 0;    ///< Ranks that have shared the state.
    std::uint64_t offer_count = 0;
    std::array<Range, kOffersMax> offers{};
};

/// The elements of `whole` that are in `part`.
[[nodiscard]] TensorView part_of(const TensorView& whole, const Range& part);

/// The state of this rank, and its part in the steps.
struct ShardedState {
    using Options = std::variant<SgdOptions, AdamOptions>;

    ShardedState(const std::vector<OptimizerTensors>& tensors_in, const Options& options_in,
                 const ShardOptions& shard_options_in);

    [[nodiscard]] bool on_cpu() const { return device.kind == DeviceKind::cpu; }
    [[nodiscard]] TensorView allocate(std::size_t count, DType dtype, Buffer& owner) const {
        owner = cuda::allocate(device, count * item_bytes(dtype));
        return {owner.data, count, dtype, device};
    }
    /// The whole of the staged masters.
    [[nodiscard]] TensorView staged_masters() const {
        return {staged_memory.data, layout.total(), DType::float32, device};
    }

    std::vector<OptimizerTensors> tensors;
    const Options options;
    const ShardOptions shard_options;
    const FlatLayout layout;
    const Device device;
    const std::size_t moment_count;
    double learning_rate = 0.0;
    bool gradients_are_set = false;

    ProcessGroup* group = nullptr;
    std::vector<Range> own{};        ///< By rank of the group: the shard that it updates for all.
    std::size_t former_size = 0;     ///< Ranks that share the state.
    std::vector<Shard> shards{};     ///< This rank's own, then the one that it replicates.
    std::vector<Shard> former{};     ///< Kept until all ranks have their new shards.
    std::optional<Loaded> loaded{};  ///< The same.
    std::int64_t version = 0;        ///< Applied steps, with skipped ones: the larger, the later.
    bool holds = false;              ///< A part of the state, in one of the above.
    bool lost = false;               ///< A step has failed halfway.
    /// The last collective of the last step. On a GPU it may still fail. If it succeeds, so have
    /// all before it.
    Work last_gather{};

    // A step that is prepared.
    bool changed = false;  ///< The moments are those after the step.
    bool staged = false;   ///< All of the new masters are there.
    Buffer staged_memory{};

    Buffer reduced_memory{};
    bool reduced = false;  ///< The next step uses reduced gradients.
};

/// The group that shares the state. Throws Error `invalid_argument` before shard().
[[nodiscard]] ProcessGroup& joined(const ShardedState& state);
/// Finds out whether the last step has failed after its call, as it can on a GPU. Without `waits`,
/// only if that is known. Throws the error of the step.
void confirm_last_step(ShardedState& state, bool waits);
[[nodiscard]] std::vector<ConstTensorView> gradients_of(const ShardedState& state,
                                                        const Range& range);
[[nodiscard]] Shard make_shard(const ShardedState& state, const Range& range);
/// Undoes a step that is prepared.
void roll_back(ShardedState& state, Stream stream);
/// Completes it.
void apply(ShardedState& state, Stream stream);
/// Divides the state among the ranks of `with` that do not leave.
void shard(ShardedState& state, ProcessGroup& with, std::span<const std::uint32_t> leaving);

}  // namespace regroup::optim

namespace regroup {

struct ShardedOptimizer::Impl : optim::ShardedState {
    using ShardedState::ShardedState;
};

}  // namespace regroup
