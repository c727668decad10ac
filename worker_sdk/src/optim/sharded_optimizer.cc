// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/sharded_optimizer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker_sdk/src/base/batches.h"
#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/memory.h"
#include "worker_sdk/src/optim/sharded_optimizer_impl.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup::optim {
namespace {

std::size_t moment_count_of(const ShardedState::Options& options) {
    const auto* const sgd = std::get_if<SgdOptions>(&options);
    return sgd == nullptr ? 2 : sgd->momentum == 0.0 ? 0 : 1;
}

FlatLayout layout_of(const std::vector<OptimizerTensors>& tensors) {
    std::vector<std::size_t> counts;
    for (const OptimizerTensors& each : tensors) {
        counts.push_back(each.master.count);
    }
    return FlatLayout(counts);
}

[[nodiscard]] OperationOptions in(const ShardedState& state, Stream stream) {
    return state.on_cpu() ? OperationOptions{} : OperationOptions{.stream = stream};
}

/// On a GPU the stream orders what follows: throws there only if the operation has failed already.
void complete(const ShardedState& state, const Work& work) {
    if (state.on_cpu() || work.done()) {
        work.wait();
    }
}

void require_step(ShardedState& state) {
    static_cast<void>(joined(state));
    confirm_last_step(state, false);
    require(state.gradients_are_set,
            "a gradient is missing; call set_gradients() before the first step");
    require(!state.lost, "a step has failed halfway, and the state is lost");
}

/// How many elements of a tensor each rank has updated.
std::vector<std::size_t> rows_of(const ShardedState& state, std::size_t tensor) {
    std::vector<std::size_t> rows;
    for (const Range& range : state.own) {
        rows.push_back(state.layout.part(tensor, range).count());
    }
    return rows;
}

void use_whole_gradients(ShardedState& state) {
    if (std::exchange(state.reduced, false)) {
        state.shards.front().optimizer.set_gradients(
            gradients_of(state, state.shards.front().range));
    }
}

void round_masters(const ShardedState& state, Stream stream) {
    std::vector<FlatTensors> flat;
    for (const OptimizerTensors& each : state.tensors) {
        FlatTensors& one = flat.emplace_back();
        one.master = static_cast<float*>(each.master.data);
        one.shadow = each.shadow.data;
        one.count = each.master.count;
        one.shadow_dtype = each.shadow.dtype;
    }
    write_shadows(state.device, flat, stream);
}

}  // namespace

ShardedState::ShardedState(const std::vector<OptimizerTensors>& tensors_in,
                           const Options& options_in, const ShardOptions& shard_options_in)
    : tensors(tensors_in),
      options(options_in),
      shard_options(shard_options_in),
      layout(layout_of(tensors)),
      device(tensors.front().master.device),
      moment_count(moment_count_of(options)) {
    gradients_are_set = std::ranges::all_of(tensors, [](const OptimizerTensors& each) {
        return each.gradient.data != nullptr || each.master.count == 0;
    });
    // Refuses wrong options.
    learning_rate = make_shard(*this, {}).optimizer.learning_rate();
}

ProcessGroup& joined(const ShardedState& state) {
    if (state.group == nullptr) {
        throw Error(Errc::invalid_argument, "optimizer: shard() must be called before this");
    }
    return *state.group;
}

void confirm_last_step(ShardedState& state, bool waits) {
    if (!waits && !state.last_gather.done()) {
        return;
    }
    try {
        state.last_gather.wait();
    } catch (const Error&) {
        state.lost = true;
        throw;
    }
}

void roll_back(ShardedState& state, Stream stream) {
    for (const Shard& each : state.shards) {
        const std::vector<TensorView> views = each.optimizer.state();
        for (std::size_t i = 0; i < each.before.size(); ++i) {
            cuda::copy(
                views[i],
                TensorView(each.before[i].data, views[i].count, views[i].dtype, state.device),
                stream);
        }
    }
    state.changed = state.staged = false;
}

void apply(ShardedState& state, Stream stream) {
    require(state.staged, "apply() without prepare()");
    const TensorView all = state.staged_masters();
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        const TensorView& master = state.tensors[t].master;
        cuda::copy(master, all.part(state.layout.first(t), master.count), stream);
    }
    round_masters(state, stream);
    state.changed = state.staged = false;
    ++state.version;
}

namespace {

void update(ShardedState& state, const GradScaler* scaler, Stream stream) {
    for (Shard& each : state.shards) {
        scaler != nullptr ? each.optimizer.step(*scaler, stream) : each.optimizer.step(stream);
    }
}

void gather_masters(ShardedState& state, Stream stream) {
    const auto gather = [&](std::size_t t) {
        const TensorView& master = state.tensors[t].master;
        const std::vector<std::size_t> rows = rows_of(state, t);
        const auto full = std::ranges::find(rows, master.count);
        if (full != rows.end()) {  // One rank has updated all of it.
            const auto root = static_cast<std::uint32_t>(full - rows.begin());
            return state.group->broadcast(master, root, in(state, stream));
        }
        const TensorView mine =
            part_of(master, state.layout.part(t, state.own[state.group->rank()]));
        return state.group->all_gather(mine, master, rows, in(state, stream));
    };
    issue_in_batches(*state.group, state.tensors.size(), gather, [&](const Work& work) {
        complete(state, work);
        state.last_gather = work;
    });
}

void step(ShardedState& state, const GradScaler* scaler, Stream stream) {
    require_step(state);
    if (state.changed) {
        roll_back(state, stream);
    }
    update(state, scaler, stream);
    state.lost = true;  // Unless the other masters come, too.
    gather_masters(state, stream);
    round_masters(state, stream);
    state.lost = false;
    ++state.version;
    use_whole_gradients(state);
}

void keep_before(const ShardedState& state, Shard& shard, Stream stream) {
    const std::vector<TensorView> views = shard.optimizer.state();
    shard.before.resize(views.size());
    for (std::size_t i = 0; i < views.size(); ++i) {
        if (shard.before[i].bytes < views[i].bytes()) {
            shard.before[i] = cuda::allocate(state.device, views[i].bytes());
        }
        cuda::copy({shard.before[i].data, views[i].count, views[i].dtype, state.device}, views[i],
                   stream);
    }
}

/// Updates the moments, and puts the new masters into the staged copy if they are this rank's own.
/// The masters themselves stay.
void update_staged(ShardedState& state, Shard& shard, const GradScaler* scaler, bool is_own,
                   Stream stream) {
    const auto for_parts = [&](const auto& action) {
        std::size_t at = 0;  // In the memory of the shard's masters.
        for (std::size_t t = 0; t < state.tensors.size(); ++t) {
            const Range part = state.layout.part(t, shard.range);
            if (part.count() > 0) {
                action(part_of(state.tensors[t].master, part), at,
                       state.layout.first(t) + part.first);
                at += part.count();
            }
        }
    };
    const std::size_t count = shard.range.count();
    const TensorView kept =
        shard.masters.data == nullptr
            ? state.allocate(count, DType::float32, shard.masters)
            : TensorView(shard.masters.data, count, DType::float32, state.device);
    for_parts([&](const TensorView& master, std::size_t at, std::size_t /*flat*/) {
        cuda::copy(kept.part(at, master.count), master, stream);
    });
    scaler != nullptr ? shard.optimizer.step(*scaler, stream) : shard.optimizer.step(stream);
    const TensorView all = state.staged_masters();
    for_parts([&](const TensorView& master, std::size_t at, std::size_t flat) {
        if (is_own) {
            cuda::copy(all.part(flat, master.count), master, stream);
        }
        cuda::copy(master, kept.part(at, master.count), stream);
    });
}

void prepare(ShardedState& state, const GradScaler* scaler, Stream stream) {
    require_step(state);
    if (state.changed) {
        roll_back(state, stream);
    }
    if (state.staged_memory.bytes == 0) {
        state.staged_memory = cuda::allocate(state.device, state.layout.total() * sizeof(float));
    }
    for (Shard& each : state.shards) {
        keep_before(state, each, stream);
    }
    state.changed = true;
    for (Shard& each : state.shards) {
        update_staged(state, each, scaler, &each == &state.shards.front(), stream);
    }
    const TensorView all = state.staged_masters();
    const Range& mine = state.own[state.group->rank()];
    std::vector<std::size_t> rows;
    for (const Range& range : state.own) {
        rows.push_back(range.count());
    }
    // On a GPU, too: a step that has failed must not be applied.
    state.group->all_gather(all.part(mine.first, mine.count()), all, rows, in(state, stream))
        .wait();
    state.staged = true;
    use_whole_gradients(state);
}

/// Reduces a gradient, and leaves each rank its part.
Work reduce_part(ShardedState& state, std::size_t tensor, const TensorView& part,
                 ReduceOp reduction, Stream stream) {
    const ConstTensorView& gradient = state.tensors[tensor].gradient;
    const std::vector<std::size_t> rows = rows_of(state, tensor);
    const auto full = std::ranges::find(rows, gradient.count);
    if (full != rows.end()) {
        const auto root = static_cast<std::uint32_t>(full - rows.begin());
        return state.group->reduce(gradient, part, reduction, root, in(state, stream));
    }
    return state.group->reduce_scatter(gradient, part, reduction, rows, in(state, stream));
}

std::vector<TensorView> reduce_gradients(ShardedState& state, ReduceOp reduction, Stream stream) {
    require_step(state);
    require(reduction == ReduceOp::avg || reduction == ReduceOp::sum,
            "gradients are reduced with avg or sum, not " + std::string(to_string(reduction)));
    require(!state.shard_options.replicate,
            "with the option replicate, each rank needs the gradients of two shards: reduce all "
            "gradients with DistributedDataParallel");
    Shard& mine = state.shards.front();
    std::size_t bytes = 0;
    std::vector<std::size_t> offsets;
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        offsets.push_back(bytes);
        bytes += padded_count(state.layout.part(t, mine.range).count()) *
                 item_bytes(state.tensors[t].gradient.dtype);
    }
    if (state.reduced_memory.bytes < bytes) {
        state.reduced_memory = cuda::allocate(state.device, bytes);
    }
    std::vector<TensorView> parts;
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        parts.emplace_back(static_cast<std::byte*>(state.reduced_memory.data) + offsets[t],
                           state.layout.part(t, mine.range).count(),
                           state.tensors[t].gradient.dtype, state.device);
    }
    issue_in_batches(
        *state.group, state.tensors.size(),
        [&](std::size_t t) { return reduce_part(state, t, parts[t], reduction, stream); },
        [&](const Work& work) { complete(state, work); });
    mine.optimizer.set_gradients(std::vector<ConstTensorView>(parts.begin(), parts.end()));
    state.reduced = true;
    std::erase_if(parts, [](const TensorView& part) { return part.count == 0; });
    return parts;
}

}  // namespace
}  // namespace regroup::optim

namespace regroup {

using optim::Shard;

ShardedOptimizer::ShardedOptimizer(const std::vector<OptimizerTensors>& tensors,
                                   const SgdOptions& options, const ShardOptions& shards) {
    optim::check_tensors(tensors);
    impl_ = std::make_unique<Impl>(tensors, options, shards);
}
ShardedOptimizer::ShardedOptimizer(const std::vector<OptimizerTensors>& tensors,
                                   const AdamOptions& options, const ShardOptions& shards) {
    optim::check_tensors(tensors);
    impl_ = std::make_unique<Impl>(tensors, options, shards);
}
ShardedOptimizer::~ShardedOptimizer() = default;
ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;
ShardedOptimizer& ShardedOptimizer::operator=(ShardedOptimizer&&) noexcept = default;

void ShardedOptimizer::shard(ProcessGroup& group, std::span<const std::uint32_t> leaving) {
    optim::shard(*impl_, group, leaving);
}

void ShardedOptimizer::step(Stream stream) {
    optim::step(*impl_, nullptr, stream);
}

void ShardedOptimizer::step(const GradScaler& scaler, Stream stream) {
    optim::step(*impl_, &scaler, stream);
}

void ShardedOptimizer::prepare(Stream stream) {
    optim::prepare(*impl_, nullptr, stream);
}

void ShardedOptimizer::prepare(const GradScaler& scaler, Stream stream) {
    optim::prepare(*impl_, &scaler, stream);
}

void ShardedOptimizer::apply(Stream stream) {
    optim::apply(*impl_, stream);
}

std::vector<TensorView> ShardedOptimizer::reduce_gradients(ReduceOp reduction, Stream stream) {
    return optim::reduce_gradients(*impl_, reduction, stream);
}

void ShardedOptimizer::set_gradients(std::span<const ConstTensorView> gradients) {
    std::vector<OptimizerTensors>& tensors = impl_->tensors;
    optim::check_gradients(gradients, tensors, impl_->device,
                           [](const OptimizerTensors& each) { return each.master.count; });
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        tensors[t].gradient = gradients[t];
    }
    impl_->gradients_are_set = true;
    impl_->reduced = false;
    for (Shard& shard : impl_->shards) {
        shard.optimizer.set_gradients(optim::gradients_of(*impl_, shard.range));
    }
}

void ShardedOptimizer::set_gradients(const DistributedDataParallel& ddp) {
    set_gradients(optim::gradients_of(ddp));
}

void ShardedOptimizer::set_learning_rate(double learning_rate, Stream stream) {
    for (Shard& shard : impl_->shards) {
        shard.optimizer.set_learning_rate(learning_rate, stream);
    }
    impl_->learning_rate = learning_rate;
}

double ShardedOptimizer::learning_rate() const noexcept {
    return impl_->learning_rate;
}

void ShardedOptimizer::write_shadows(Stream stream) {
    optim::round_masters(*impl_, stream);
}

std::int64_t ShardedOptimizer::step_count(Stream stream) const {
    return impl_->shards.empty() ? 0 : impl_->shards.front().optimizer.step_count(stream);
}

std::vector<TensorView> ShardedOptimizer::state() const {
    std::vector<TensorView> all;
    for (const Shard& shard : impl_->shards) {
        const std::vector<TensorView> state = shard.optimizer.state();
        all.insert(all.end(), state.begin(), state.end());
    }
    return all;
}

}  // namespace regroup
