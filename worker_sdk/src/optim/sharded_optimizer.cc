// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/sharded_optimizer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker_sdk/src/base/batches.h"
#include "worker_sdk/src/optim/flat_tensors.h"
#include "worker_sdk/src/optim/shadow.h"
#include "worker_sdk/src/optim/sharded_optimizer_impl.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup {

using optim::FlatLayout;
using optim::part_of;
using optim::Range;
using optim::require;
using optim::Shard;

namespace {

using Options = std::variant<SgdOptions, AdamOptions>;

std::size_t moment_count_of(const Options& options) {
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

}  // namespace

ShardedOptimizer::Impl::Impl(const std::vector<OptimizerTensors>& tensors_in,
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
    learning_rate = make_shard({}).optimizer.learning_rate();
}

ProcessGroup& ShardedOptimizer::Impl::joined() const {
    if (group == nullptr) {
        throw Error(Errc::invalid_argument, "optimizer: shard() must be called before this");
    }
    return *group;
}

/// Finds out whether the last step has failed after its call, as it can on a GPU. Without `waits`,
/// only if that is known. Throws the error of the step.
void ShardedOptimizer::Impl::confirm_last_step(bool waits) {
    if (!waits && !last_gather.done()) {
        return;
    }
    try {
        last_gather.wait();
    } catch (const Error&) {
        lost = true;
        throw;
    }
}

void ShardedOptimizer::Impl::require_step() {
    static_cast<void>(joined());
    confirm_last_step(false);
    require(gradients_are_set, "a gradient is missing; call set_gradients() before the first step");
    require(!lost, "a step has failed halfway, and the state is lost");
}

void ShardedOptimizer::Impl::update(const GradScaler* scaler, Stream stream) {
    for (Shard& each : shards) {
        scaler != nullptr ? each.optimizer.step(*scaler, stream) : each.optimizer.step(stream);
    }
}

/// How many elements of a tensor each rank has updated.
std::vector<std::size_t> ShardedOptimizer::Impl::rows_of(std::size_t tensor) const {
    std::vector<std::size_t> rows;
    for (const Range& range : own) {
        rows.push_back(layout.part(tensor, range).count());
    }
    return rows;
}

void ShardedOptimizer::Impl::gather_masters(Stream stream) {
    const auto gather = [&](std::size_t t) {
        const TensorView& master = tensors[t].master;
        const std::vector<std::size_t> rows = rows_of(t);
        const auto full = std::ranges::find(rows, master.count);
        if (full != rows.end()) {  // One rank has updated all of it.
            const auto root = static_cast<std::uint32_t>(full - rows.begin());
            return group->broadcast(master, root, in(stream));
        }
        const TensorView mine = part_of(master, layout.part(t, own[group->rank()]));
        return group->all_gather(mine, master, rows, in(stream));
    };
    issue_in_batches(*group, tensors.size(), gather, [this](const Work& work) {
        complete(work);
        last_gather = work;
    });
}

void ShardedOptimizer::Impl::step(const GradScaler* scaler, Stream stream) {
    require_step();
    if (changed) {
        roll_back(stream);
    }
    update(scaler, stream);
    lost = true;  // Unless the other masters come, too.
    gather_masters(stream);
    write_shadows(stream);
    lost = false;
    ++version;
    use_whole_gradients();
}

void ShardedOptimizer::Impl::keep_before(Shard& shard, Stream stream) const {
    const std::vector<TensorView> state = shard.optimizer.state();
    shard.before.resize(state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
        if (shard.before[i].bytes < state[i].bytes()) {
            shard.before[i] = cuda::allocate(device, state[i].bytes());
        }
        cuda::copy({shard.before[i].data, state[i].count, state[i].dtype, device}, state[i],
                   stream);
    }
}

void ShardedOptimizer::Impl::roll_back(Stream stream) {
    for (const Shard& each : shards) {
        const std::vector<TensorView> state = each.optimizer.state();
        for (std::size_t i = 0; i < each.before.size(); ++i) {
            cuda::copy(state[i],
                       TensorView(each.before[i].data, state[i].count, state[i].dtype, device),
                       stream);
        }
    }
    changed = staged = false;
}

/// Updates the moments, and puts the new masters into the staged copy if they are this rank's own.
/// The masters themselves stay.
void ShardedOptimizer::Impl::update_staged(Shard& shard, const GradScaler* scaler, bool is_own,
                                           Stream stream) {
    const auto for_parts = [&](const auto& action) {
        std::size_t at = 0;  // In the memory of the shard's masters.
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const Range part = layout.part(t, shard.range);
            if (part.count() > 0) {
                action(part_of(tensors[t].master, part), at, layout.first(t) + part.first);
                at += part.count();
            }
        }
    };
    const std::size_t count = shard.range.count();
    const TensorView kept = shard.masters.data == nullptr
                                ? allocate(count, DType::float32, shard.masters)
                                : TensorView(shard.masters.data, count, DType::float32, device);
    for_parts([&](const TensorView& master, std::size_t at, std::size_t /*flat*/) {
        cuda::copy(kept.part(at, master.count), master, stream);
    });
    scaler != nullptr ? shard.optimizer.step(*scaler, stream) : shard.optimizer.step(stream);
    const TensorView all(staged_memory.data, layout.total(), DType::float32, device);
    for_parts([&](const TensorView& master, std::size_t at, std::size_t flat) {
        if (is_own) {
            cuda::copy(all.part(flat, master.count), master, stream);
        }
        cuda::copy(master, kept.part(at, master.count), stream);
    });
}

void ShardedOptimizer::Impl::prepare(const GradScaler* scaler, Stream stream) {
    require_step();
    if (changed) {
        roll_back(stream);
    }
    if (staged_memory.bytes == 0) {
        staged_memory = cuda::allocate(device, layout.total() * sizeof(float));
    }
    for (Shard& each : shards) {
        keep_before(each, stream);
    }
    changed = true;
    for (Shard& each : shards) {
        update_staged(each, scaler, &each == &shards.front(), stream);
    }
    const TensorView all(staged_memory.data, layout.total(), DType::float32, device);
    const Range& mine = own[group->rank()];
    std::vector<std::size_t> rows;
    for (const Range& range : own) {
        rows.push_back(range.count());
    }
    // On a GPU, too: a step that has failed must not be applied.
    group->all_gather(all.part(mine.first, mine.count()), all, rows, in(stream)).wait();
    staged = true;
    use_whole_gradients();
}

void ShardedOptimizer::Impl::apply(Stream stream) {
    require(staged, "apply() without prepare()");
    const TensorView all(staged_memory.data, layout.total(), DType::float32, device);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const TensorView& master = tensors[t].master;
        cuda::copy(master, all.part(layout.first(t), master.count), stream);
    }
    write_shadows(stream);
    changed = staged = false;
    ++version;
}

void ShardedOptimizer::Impl::write_shadows(Stream stream) const {
    std::vector<optim::FlatTensors> flat;
    for (const OptimizerTensors& each : tensors) {
        optim::FlatTensors& one = flat.emplace_back();
        one.master = static_cast<float*>(each.master.data);
        one.shadow = each.shadow.data;
        one.count = each.master.count;
        one.shadow_dtype = each.shadow.dtype;
    }
    optim::write_shadows(device, flat, stream);
}

/// Reduces a gradient, and leaves each rank its part.
Work ShardedOptimizer::Impl::reduce_part(std::size_t tensor, const TensorView& part,
                                         ReduceOp reduction, Stream stream) {
    const ConstTensorView& gradient = tensors[tensor].gradient;
    const std::vector<std::size_t> rows = rows_of(tensor);
    const auto full = std::ranges::find(rows, gradient.count);
    if (full != rows.end()) {
        const auto root = static_cast<std::uint32_t>(full - rows.begin());
        return group->reduce(gradient, part, reduction, root, in(stream));
    }
    return group->reduce_scatter(gradient, part, reduction, rows, in(stream));
}

std::vector<TensorView> ShardedOptimizer::Impl::reduce_gradients(ReduceOp reduction,
                                                                 Stream stream) {
    require_step();
    require(reduction == ReduceOp::avg || reduction == ReduceOp::sum,
            "gradients are reduced with avg or sum, not " + std::string(to_string(reduction)));
    require(!shard_options.replicate,
            "with the option replicate, each rank needs the gradients of two shards: reduce all "
            "gradients with DistributedDataParallel");
    Shard& mine = shards.front();
    std::size_t bytes = 0;
    std::vector<std::size_t> offsets;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        offsets.push_back(bytes);
        bytes += optim::padded_count(layout.part(t, mine.range).count()) *
                 item_bytes(tensors[t].gradient.dtype);
    }
    if (reduced_memory.bytes < bytes) {
        reduced_memory = cuda::allocate(device, bytes);
    }
    std::vector<TensorView> parts;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        parts.emplace_back(static_cast<std::byte*>(reduced_memory.data) + offsets[t],
                           layout.part(t, mine.range).count(), tensors[t].gradient.dtype, device);
    }
    issue_in_batches(
        *group, tensors.size(),
        [&](std::size_t t) { return reduce_part(t, parts[t], reduction, stream); },
        [this](const Work& work) { complete(work); });
    mine.optimizer.set_gradients(std::vector<ConstTensorView>(parts.begin(), parts.end()));
    reduced = true;
    std::erase_if(parts, [](const TensorView& part) { return part.count == 0; });
    return parts;
}

void ShardedOptimizer::Impl::use_whole_gradients() {
    if (std::exchange(reduced, false)) {
        shards.front().optimizer.set_gradients(gradients_of(shards.front().range));
    }
}

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
    impl_->shard(group, leaving);
}

void ShardedOptimizer::step(Stream stream) {
    impl_->step(nullptr, stream);
}

void ShardedOptimizer::step(const GradScaler& scaler, Stream stream) {
    impl_->step(&scaler, stream);
}

void ShardedOptimizer::prepare(Stream stream) {
    impl_->prepare(nullptr, stream);
}

void ShardedOptimizer::prepare(const GradScaler& scaler, Stream stream) {
    impl_->prepare(&scaler, stream);
}

void ShardedOptimizer::apply(Stream stream) {
    impl_->apply(stream);
}

std::vector<TensorView> ShardedOptimizer::reduce_gradients(ReduceOp reduction, Stream stream) {
    return impl_->reduce_gradients(reduction, stream);
}

void ShardedOptimizer::set_gradients(std::span<const ConstTensorView> gradients) {
    std::vector<OptimizerTensors>& tensors = impl_->tensors;
    require(gradients.size() == tensors.size(),
            "it has " + std::to_string(tensors.size()) + " tensors, but was given " +
                std::to_string(gradients.size()) + " gradients");
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        optim::check_gradient(gradients[t], {t, tensors[t].master.count, impl_->device});
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        tensors[t].gradient = gradients[t];
    }
    impl_->gradients_are_set = true;
    impl_->reduced = false;
    for (Shard& shard : impl_->shards) {
        shard.optimizer.set_gradients(impl_->gradients_of(shard.range));
    }
}

void ShardedOptimizer::set_gradients(const DistributedDataParallel& ddp) {
    std::vector<ConstTensorView> gradients;
    for (std::size_t index = 0; index < ddp.parameter_count(); ++index) {
        gradients.push_back(ddp.gradient(index));
    }
    set_gradients(gradients);
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
    impl_->write_shadows(stream);
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
