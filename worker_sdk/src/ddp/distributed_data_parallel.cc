// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker_sdk/src/base/batches.h"
#include "worker_sdk/src/ddp/bucket_plan.h"
#include "worker_sdk/src/ddp/reducer.h"
#include "worker_sdk/src/ddp/replicas.h"

namespace regroup {
namespace ddp {
namespace {

std::vector<Parameter> with_gradient_shapes(std::vector<Parameter> parameters) {
    for (Parameter& parameter : parameters) {
        if (parameter.gradient.data == nullptr && parameter.gradient.count == 0) {
            parameter.gradient = {nullptr, parameter.value.count, parameter.value.dtype,
                                  parameter.value.device};
        }
    }
    return parameters;
}

bool is_callers(const Reducer& reducer, std::size_t index) {
    return reducer.parameters[index].gradient.data != nullptr;
}

TensorView place_of(const Reducer& reducer, std::size_t index) {
    return is_callers(reducer, index) ? reducer.parameters[index].gradient
                                      : reducer.memory->gradient(index);
}

std::vector<TensorView> gradients_of(const Reducer& reducer) {
    std::vector<TensorView> gradients;
    for (const Parameter& parameter : reducer.parameters) {
        gradients.push_back(parameter.gradient);
    }
    return gradients;
}

std::vector<Bucket> plan_in_order(const Reducer& reducer, std::span<const std::size_t> order) {
    return plan_buckets(gradients_of(reducer), order,
                        {.first_bytes_max = reducer.options.first_bucket_bytes,
                         .bytes_max = reducer.options.bucket_bytes});
}

/// The order that a committed step of an earlier round has shown, from the lowest rank that knows
/// it; empty if no rank does. All ranks of a loop's group call it.
std::vector<std::size_t> agree_on_known_order(Reducer& reducer) {
    if (!reducer.kept_order.has_loop()) {
        return {};
    }
    const std::vector<std::size_t> known = reducer.kept_order.known();
    const std::int64_t knows = known.empty() ? 0 : 1;
    const std::vector<std::int64_t> all = reducer.exchange.gather(std::span(&knows, 1));
    const auto first = std::ranges::find(all, 1);
    if (first == all.end()) {
        return {};
    }
    std::vector<std::int64_t> agreed(known.begin(), known.end());
    agreed.resize(reducer.parameters.size());
    reducer.exchange.broadcast(agreed, static_cast<std::uint32_t>(first - all.begin()));
    std::vector<std::size_t> order(agreed.begin(), agreed.end());
    reducer.kept_order.adopt(order);
    return order;
}

void adopt_plan(Reducer& reducer, std::vector<Bucket> plan) {
    for (std::size_t at = 0; at < plan.size(); ++at) {
        for (const std::size_t index : plan[at].parameters) {
            reducer.gradients[index].bucket = static_cast<std::uint32_t>(at);
            reducer.gradients[index].is_copied =
                place_of(reducer, index).data != reducer.memory->in_bucket(index).data;
        }
    }
    reducer.pipeline.adopt(std::move(plan), *reducer.memory);
}

void begin_step(Reducer& reducer) {
    ++reducer.step;
    reducer.reported_count = 0;
    reducer.uneven = {};
    reducer.pipeline.begin_step();
}

void require_index(const Reducer& reducer, std::size_t index) {
    if (index >= reducer.gradients.size()) {
        refuse("there is no gradient " + std::to_string(index) + " among " +
               std::to_string(reducer.gradients.size()));
    }
}

void require_reportable(const Reducer& reducer, std::size_t index) {
    require_index(reducer, index);
    if (reducer.gradients[index].reported_in == reducer.step) {
        refuse("gradient " + std::to_string(index) + " was reported ready twice in one step");
    }
}

void copy_in(Reducer& reducer, std::size_t index) {
    const TensorView& in_bucket = reducer.memory->in_bucket(index);
    reducer.device->copy(in_bucket.data, place_of(reducer, index).data, in_bucket.bytes());
}

void report(Reducer& reducer, ReportedGradient& gradient, std::size_t index) {
    gradient.reported_in = reducer.step;
    ++reducer.reported_count;
    if (reducer.recording) [[unlikely]] {
        reducer.order.push_back(index);
    }
    reducer.pipeline.add_gradient(gradient.bucket);
}

/// The gradient counts as zero, or as the sum of the no_sync steps.
void report_without_gradient(Reducer& reducer, std::size_t index) {
    ReportedGradient& gradient = reducer.gradients[index];
    if (gradient.contributed_in != reducer.step) {
        const TensorView& in_bucket = reducer.memory->in_bucket(index);
        reducer.device->set_zero(in_bucket.data, in_bucket.bytes());
    } else if (gradient.is_copied) {  // The sum of the no_sync steps.
        copy_in(reducer, index);
    }
    report(reducer, gradient, index);
}

void report_missing(Reducer& reducer) {
    const std::size_t all = reducer.gradients.size();
    if (reducer.reported_count == all) {
        return;
    }
    if (!reducer.options.unused_parameters && reducer.uneven.has_input) {
        const auto missing = std::ranges::find_if(
            reducer.gradients, [&](const auto& each) { return each.reported_in != reducer.step; });
        refuse("gradient " + std::to_string(missing - reducer.gradients.begin()) +
               " was not reported ready in this step (" +
               std::to_string(all - reducer.reported_count) + " of " + std::to_string(all) +
               " are missing); if parameters may go unused, set the option unused_parameters");
    }
    for (std::size_t index = all; index-- > 0;) {
        if (reducer.gradients[index].reported_in != reducer.step) {
            report_without_gradient(reducer, index);
        }
    }
}

void agree_on_used(Reducer& reducer) {
    for (std::size_t index = 0; index < reducer.used.size(); ++index) {
        reducer.used[index] = reducer.gradients[index].contributed_in == reducer.step ? 1 : 0;
    }
    reducer.exchange.maximum(reducer.used);
}

bool was_used(const Reducer& reducer, std::size_t index) {
    return !reducer.options.unused_parameters || reducer.used[index] != 0;
}

// Called only when every bucket has arrived: a step is applied as a whole or not at all.
void copy_out(Reducer& reducer) {
    for (std::size_t index = 0; index < reducer.gradients.size(); ++index) {
        if (reducer.gradients[index].is_copied &&
            (was_used(reducer, index) || !is_callers(reducer, index))) {
            const TensorView& in_bucket = reducer.memory->in_bucket(index);
            reducer.device->copy(place_of(reducer, index).data, in_bucket.data, in_bucket.bytes());
        }
    }
}

void rebuild_buckets(Reducer& reducer) {
    std::vector<std::int64_t> agreed(reducer.order.begin(), reducer.order.end());
    reducer.exchange.broadcast(agreed, reducer.uneven.first_with_input);
    const std::vector<std::size_t> order(agreed.begin(), agreed.end());
    std::vector<Bucket> plan = plan_in_order(reducer, order);
    reducer.memory->adopt(reducer.group, plan);
    if (plan != reducer.pipeline.plan()) {
        adopt_plan(reducer, std::move(plan));
    }
    reducer.kept_order.learn(order);
    reducer.recording = false;
    reducer.order = {};
}

void broadcast(ProcessGroup& group, std::span<const TensorView> tensors, std::uint32_t root) {
    issue_in_batches(
        group, tensors.size(), [&](std::size_t i) { return group.broadcast(tensors[i], root); },
        [](const Work& work) { work.wait(); });
}

void broadcast_replica(Reducer& reducer, std::uint32_t root) {
    std::vector<TensorView> tensors;
    for (const Parameter& parameter : reducer.parameters) {
        tensors.push_back(parameter.value);
    }
    tensors.insert(tensors.end(), reducer.buffers.begin(), reducer.buffers.end());
    broadcast(reducer.group, tensors, root);
}

}  // namespace

Reducer::Reducer(ProcessGroup& group_in, std::vector<Parameter> parameters_in,
                 std::vector<TensorView> buffers_in, const DataParallelOptions& options_in)
    : group(group_in),
      parameters(with_gradient_shapes(std::move(parameters_in))),
      buffers(std::move(buffers_in)),
      options(options_in),
      stream(group, options.stream),
      device(make_gradient_device(group.device(), options.stream)),
      exchange(group, *device),
      kept_order(options.rebuild_buckets ? GroupOrders::of(group) : nullptr, shapes_of(parameters)),
      pipeline(group, *device, options),
      gradients(parameters.size()) {
    check_registration(group, parameters, buffers, options);
    check_same_on_all_ranks(exchange, parameters, buffers, options);
    broadcast_replica(*this, 0);

    const std::vector<std::size_t> known = agree_on_known_order(*this);
    recording = options.rebuild_buckets && known.empty();
    std::vector<Bucket> plan = plan_in_order(*this, backward_order(parameters.size()));
    memory = std::make_unique<GradientMemory>(group, gradients_of(*this), plan);
    if (!known.empty()) {
        // The gradients lie as in the round that has learned the order: a bucket is sorted by that.
        plan = plan_in_order(*this, known);
        memory->adopt(group, plan);
    }
    adopt_plan(*this, std::move(plan));
    order.reserve(recording ? parameters.size() : 0);
    used.resize(options.unused_parameters ? parameters.size() : 0);
    begin_step(*this);
}

Reducer::~Reducer() {
    if (reported_count > 0) {
        group.abort("a training step was given up while its gradients were being reduced");
        pipeline.give_up();
    }
    device->settle();
}

}  // namespace ddp

double StepStatistics::hidden() const noexcept {
    if (communication <= std::chrono::nanoseconds::zero()) {
        return 1.0;
    }
    const auto exposed =
        static_cast<double>(waited.count()) / static_cast<double>(communication.count());
    return std::clamp(1.0 - exposed, 0.0, 1.0);
}

DistributedDataParallel::DistributedDataParallel(ProcessGroup& group,
                                                 std::vector<Parameter> parameters,
                                                 std::vector<TensorView> buffers,
                                                 const DataParallelOptions& options)
    : reducer_(std::make_unique<ddp::Reducer>(group, std::move(parameters), std::move(buffers),
                                              options)) {}

DistributedDataParallel::~DistributedDataParallel() = default;

TensorView DistributedDataParallel::gradient(std::size_t index) const {
    ddp::require_index(*reducer_, index);
    return ddp::place_of(*reducer_, index);
}

std::vector<TensorView> DistributedDataParallel::gradients() const {
    std::vector<TensorView> tensors =
        reducer_->memory->runs([this](std::size_t i) { return !ddp::is_callers(*reducer_, i); });
    for (const Parameter& parameter : reducer_->parameters) {
        if (parameter.gradient.data != nullptr) {
            tensors.push_back(parameter.gradient);
        }
    }
    return tensors;
}

void DistributedDataParallel::zero_gradients() {
    reducer_->device->set_zero(reducer_->memory->buffer().data, reducer_->memory->bytes());
}

void DistributedDataParallel::gradient_ready(std::size_t index) {
    ddp::Reducer& reducer = *reducer_;
    if (index >= reducer.gradients.size() || reducer.gradients[index].reported_in == reducer.step)
        [[unlikely]] {
        ddp::require_reportable(reducer, index);
    }
    ddp::ReportedGradient& gradient = reducer.gradients[index];
    gradient.contributed_in = reducer.step;
    if (reducer.no_sync_depth > 0) [[unlikely]] {
        return;
    }
    if (gradient.is_copied) {
        ddp::copy_in(reducer, index);
    }
    ddp::report(reducer, gradient, index);
}

void DistributedDataParallel::gradient_unused(std::size_t index) {
    if (!reducer_->options.unused_parameters) {
        ddp::refuse("gradient " + std::to_string(index) +
                    " was reported unused, but the option unused_parameters is off");
    }
    ddp::require_reportable(*reducer_, index);
    if (reducer_->no_sync_depth == 0) {
        ddp::report_without_gradient(*reducer_, index);
    }
}

void DistributedDataParallel::finish_step() {
    ddp::Reducer& reducer = *reducer_;
    if (reducer.no_sync_depth > 0) {
        return;
    }
    ddp::report_missing(reducer);
    reducer.pipeline.finish();
    if (reducer.options.unused_parameters) {
        ddp::agree_on_used(reducer);
    }
    ddp::copy_out(reducer);
    if (reducer.recording) {
        ddp::rebuild_buckets(reducer);
    }
    const std::uint32_t root = reducer.uneven.first_with_input;
    ddp::begin_step(reducer);
    if (reducer.options.broadcast_buffers_each_step) {
        ddp::broadcast(reducer.group, reducer.buffers, root);
    }
}

void DistributedDataParallel::reduce_gradients() {
    for (std::size_t i = reducer_->uneven.has_input ? parameter_count() : 0; i-- > 0;) {
        gradient_ready(i);
    }
    finish_step();
}

DistributedDataParallel::NoSync::NoSync(ddp::Reducer& reducer) : reducer_(reducer) {
    if (reducer_.reported_count > 0) {
        ddp::refuse("no_sync in the middle of a step: gradients were reported already");
    }
    ++reducer_.no_sync_depth;
}

DistributedDataParallel::NoSync::~NoSync() {
    --reducer_.no_sync_depth;
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
    return NoSync(*reducer_);
}

bool DistributedDataParallel::was_used(std::size_t index) const {
    ddp::require_index(*reducer_, index);
    return ddp::was_used(*reducer_, index);
}

void DistributedDataParallel::broadcast_parameters(std::uint32_t root) {
    ddp::broadcast_replica(*reducer_, root);
}

void DistributedDataParallel::broadcast_buffers() {
    ddp::broadcast(reducer_->group, reducer_->buffers, 0);
}

std::optional<ReplicaDifference> DistributedDataParallel::find_replica_difference() {
    return ddp::find_replica_difference(reducer_->exchange, *reducer_->device,
                                        reducer_->parameters);
}

std::span<const Bucket> DistributedDataParallel::buckets() const noexcept {
    return reducer_->pipeline.plan();
}

bool DistributedDataParallel::buckets_are_final() const noexcept {
    return !reducer_->recording;
}

std::size_t DistributedDataParallel::parameter_count() const noexcept {
    return reducer_->parameters.size();
}

const Buffer& DistributedDataParallel::gradient_memory() const noexcept {
    return reducer_->memory->buffer();
}

StepStatistics DistributedDataParallel::statistics() const noexcept {
    return reducer_->pipeline.statistics();
}

}  // namespace regroup
