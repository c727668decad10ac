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

/// What a rank tells the others about its state, before they divide it anew.
struct Standing {
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

}  // namespace regroup::optim

namespace regroup {

/// The state of this rank, and its part in the steps.
struct ShardedOptimizer::Impl {
    using Options = std::variant<SgdOptions, AdamOptions>;
    using Range = optim::Range;
    using Shard = optim::Shard;

    Impl(const std::vector<OptimizerTensors>& tensors_in, const Options& options_in,
         const ShardOptions& shard_options_in);

    [[nodiscard]] bool on_cpu() const { return device.kind == DeviceKind::cpu; }
    [[nodiscard]] ProcessGroup& joined() const;
    [[nodiscard]] OperationOptions in(Stream stream) const {
        return on_cpu() ? OperationOptions{} : OperationOptions{.stream = stream};
    }
    /// On a GPU the stream orders what follows: throws there only if the operation has failed
    /// already.
    void complete(const Work& work) const {
        if (on_cpu() || work.done()) {
            work.wait();
        }
    }
    [[nodiscard]] TensorView allocate(std::size_t count, DType dtype, Buffer& owner) const {
        owner = cuda::allocate(device, count * item_bytes(dtype));
        return {owner.data, count, dtype, device};
    }

    [[nodiscard]] std::vector<ConstTensorView> gradients_of(const Range& range) const;
    [[nodiscard]] Shard make_shard(const Range& range) const;
    [[nodiscard]] static std::vector<std::uint32_t> staying(std::uint32_t world_size,
                                                            std::span<const std::uint32_t> leaving);
    [[nodiscard]] std::vector<std::vector<Range>> divide(
        std::uint32_t world_size, std::span<const std::uint32_t> staying) const;

    [[nodiscard]] std::vector<optim::Piece> pieces();
    [[nodiscard]] optim::Standing standing();
    [[nodiscard]] std::vector<optim::Standing> gather_standings(ProcessGroup& with);
    [[nodiscard]] std::optional<optim::Standing> agree(std::span<const optim::Standing> all) const;
    void settle(std::int64_t version);
    void carry_out(ProcessGroup& with, std::span<const optim::Transfer> transfers,
                   std::span<const optim::Piece> old, std::span<const Shard> fresh) const;
    [[nodiscard]] std::string describe_loss(std::span<const std::vector<Range>> held,
                                            std::size_t sharers) const;
    void adopt(const std::optional<optim::Standing>& best, std::vector<Shard> fresh);
    void shard(ProcessGroup& with, std::span<const std::uint32_t> leaving);

    void confirm_last_step(bool waits);
    void require_step();
    void update(const GradScaler* scaler, Stream stream);
    void gather_masters(Stream stream);
    void step(const GradScaler* scaler, Stream stream);
    void keep_before(Shard& shard, Stream stream) const;
    void roll_back(Stream stream);
    void update_staged(Shard& shard, const GradScaler* scaler, bool is_own, Stream stream);
    void prepare(const GradScaler* scaler, Stream stream);
    void apply(Stream stream);
    void write_shadows(Stream stream) const;
    [[nodiscard]] Work reduce_part(std::size_t tensor, const TensorView& part, ReduceOp reduction,
                                   Stream stream);
    [[nodiscard]] std::vector<TensorView> reduce_gradients(ReduceOp reduction, Stream stream);
    void use_whole_gradients();
    [[nodiscard]] std::vector<std::size_t> rows_of(std::size_t tensor) const;

    std::vector<OptimizerTensors> tensors;
    const Options options;
    const ShardOptions shard_options;
    const optim::FlatLayout layout;
    const Device device;
    const std::size_t moment_count;
    double learning_rate = 0.0;
    bool gradients_are_set = false;

    ProcessGroup* group = nullptr;
    std::vector<Range> own{};     ///< By rank of the group: the shard that it updates for all.
    std::size_t former_size = 0;  ///< Ranks that share the state.
    std::vector<Shard> shards{};  ///< This rank's own, then the one that it replicates.
    std::vector<Shard> former{};  ///< Kept until all ranks have their new shards.
    std::optional<optim::Loaded> loaded{};  ///< The same.
    std::int64_t version = 0;  ///< Applied steps, with skipped ones: the larger, the later.
    bool holds = false;        ///< A part of the state, in one of the above.
    bool lost = false;         ///< A step has failed halfway.
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

}  // namespace regroup
