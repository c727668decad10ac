// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/reducer.h"

#include <regroup/error.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker_sdk/src/base/batches.h"
#include "worker_sdk/src/ddp/bucket_plan.h"
#include "worker_sdk/src/ddp/replicas.h"

namespace regroup::ddp {
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

std::vector<TensorView> gradients_of(std::span<const Parameter> parameters) {
    std::vector<TensorView> gradients;
    for (const Parameter& parameter : parameters) {
        gradients.push_back(parameter.gradient);
    }
    return gradients;
}

/// Without waiting. On a GPU nobody waits for a Work: one that has failed must be looked at.
void throw_if_failed(const Work& work) {
    if (work.done()) {
        work.wait();
    }
}

BucketLimits limits_of(const DataParallelOptions& options) {
    return {.first_bytes_max = options.first_bucket_bytes, .bytes_max = options.bucket_bytes};
}

}  // namespace

Reducer::Reducer(ProcessGroup& group, std::vector<Parameter> parameters,
                 std::vector<TensorView> buffers, const DataParallelOptions& options)
    : group_(group),
      parameters_(with_gradient_shapes(std::move(parameters))),
      buffers_(std::move(buffers)),
      options_(options),
      stream_(group, options.stream),
      device_(make_gradient_device(group.device(), options.stream)),
      exchange_(group, *device_),
      slots_(parameters_.size()),
      kept_order_(options.rebuild_buckets ? GroupOrders::of(group) : nullptr,
                  shapes_of(parameters_)) {
    check_registration(group_, parameters_, buffers_, options_);
    check_same_on_all_ranks(exchange_, parameters_, buffers_, options_);
    broadcast_parameters(0);

    const std::vector<TensorView> gradients = gradients_of(parameters_);
    const std::vector<std::size_t> order = agree_on_known_order();
    recording_ = options_.rebuild_buckets && order.empty();
    std::vector<Bucket> plan =
        plan_buckets(gradients, backward_order(parameters_.size()), limits_of(options_));
    memory_.emplace(group_, gradients, plan);
    if (!order.empty()) {
        // The gradients lie as in the round that has learned the order: a bucket is sorted by that.
        plan = plan_buckets(gradients, order, limits_of(options_));
        memory_->adopt(group_, plan);
    }
    adopt_plan(std::move(plan));
    order_.reserve(recording_ ? parameters_.size() : 0);
    used_.resize(options_.unused_parameters ? parameters_.size() : 0);
    begin_step();
}

/// The order that a committed step of an earlier round has shown, from the lowest rank that knows
/// it; empty if no rank does. All ranks of a loop's group call it.
std::vector<std::size_t> Reducer::agree_on_known_order() {
    if (!kept_order_.has_loop()) {
        return {};
    }
    const std::vector<std::size_t> known = kept_order_.known();
    const std::int64_t knows = known.empty() ? 0 : 1;
    const std::vector<std::int64_t> all = exchange_.gather(std::span(&knows, 1));
    const auto first = std::ranges::find(all, 1);
    if (first == all.end()) {
        return {};
    }
    std::vector<std::int64_t> agreed(known.begin(), known.end());
    agreed.resize(parameters_.size());
    exchange_.broadcast(agreed, static_cast<std::uint32_t>(first - all.begin()));
    std::vector<std::size_t> order(agreed.begin(), agreed.end());
    kept_order_.adopt(order);
    return order;
}

void Reducer::adopt_plan(std::vector<Bucket> plan) {
    plan_ = std::move(plan);
    flights_.assign(plan_.size(), {});
    handles_.clear();
    for (std::size_t at = 0; at < plan_.size(); ++at) {
        for (const std::size_t index : plan_[at].parameters) {
            slots_[index].bucket = static_cast<std::uint32_t>(at);
            slots_[index].is_copied = place_of(index).data != memory_->in_bucket(index).data;
        }
        handles_.push_back({.index = at,
                            .is_last = at + 1 == plan_.size(),
                            .parameters = plan_[at].parameters,
                            .gradients = memory_->bucket(at),
                            .reduction = options_.reduction,
                            .stream = device_->side_stream()});
    }
    if (options_.hook) {
        options_.hook->prepare(group_, handles_);
    }
}

Reducer::~Reducer() {
    give_up_step();
    device_->settle();
}

void Reducer::give_up_step() noexcept {
    if (reported_count_ == 0) {
        return;
    }
    group_.abort("a training step was given up while its gradients were being reduced");
    for (const Flight& flight : std::span(flights_).first(started_count_)) {
        try {
            flight.work.wait();  // The group may write into our buckets until then.
        } catch (const Error&) {
            continue;  // The destructor has no caller to report to.
        }
    }
}

void Reducer::begin_step() {
    ++step_;
    reported_count_ = 0;
    started_count_ = 0;
    uneven_ = {};
    for (std::size_t at = 0; at < plan_.size(); ++at) {
        flights_[at].missing_count = plan_[at].parameters.size();
    }
}

TensorView Reducer::gradient(std::size_t index) const {
    if (index >= slots_.size()) {
        check_reportable(index);
    }
    return place_of(index);
}

std::vector<TensorView> Reducer::gradients() const {
    std::vector<TensorView> tensors =
        memory_->runs([this](std::size_t i) { return !is_callers(i); });
    for (const Parameter& parameter : parameters_) {
        if (parameter.gradient.data != nullptr) {
            tensors.push_back(parameter.gradient);
        }
    }
    return tensors;
}

void Reducer::zero_gradients() {
    device_->set_zero(memory_->buffer().data, memory_->bytes());
}

void Reducer::check_reportable(std::size_t index) const {
    if (index >= slots_.size()) {
        refuse("there is no gradient " + std::to_string(index) + " among " +
               std::to_string(slots_.size()));
    }
    if (slots_[index].reported_in == step_) {
        refuse("gradient " + std::to_string(index) + " was reported ready twice in one step");
    }
}

void Reducer::gradient_ready(std::size_t index) {
    if (index >= slots_.size() || slots_[index].reported_in == step_) [[unlikely]] {
        check_reportable(index);
    }
    Slot& slot = slots_[index];
    slot.contributed_in = step_;
    if (no_sync_depth_ > 0) [[unlikely]] {
        return;
    }
    if (slot.is_copied) {
        copy_in(index);
    }
    report(slot, index);
}

void Reducer::copy_in(std::size_t index) {
    const TensorView& in_bucket = memory_->in_bucket(index);
    device_->copy(in_bucket.data, place_of(index).data, in_bucket.bytes());
}

void Reducer::gradient_unused(std::size_t index) {
    if (!options_.unused_parameters) {
        refuse("gradient " + std::to_string(index) +
               " was reported unused, but the option unused_parameters is off");
    }
    check_reportable(index);
    if (no_sync_depth_ == 0) {
        report_without_gradient(index);
    }
}

/// The gradient counts as zero, or as the sum of the no_sync steps.
void Reducer::report_without_gradient(std::size_t index) {
    Slot& slot = slots_[index];
    if (slot.contributed_in != step_) {
        const TensorView& in_bucket = memory_->in_bucket(index);
        device_->set_zero(in_bucket.data, in_bucket.bytes());
    } else if (slot.is_copied) {  // The sum of the no_sync steps.
        copy_in(index);
    }
    report(slot, index);
}

void Reducer::report(Slot& slot, std::size_t index) {
    slot.reported_in = step_;
    ++reported_count_;
    if (recording_) [[unlikely]] {
        order_.push_back(index);
    }
    if (--flights_[slot.bucket].missing_count == 0) {
        start_complete_buckets();
    }
}

void Reducer::start_complete_buckets() {
    while (started_count_ < plan_.size() && flights_[started_count_].missing_count == 0) {
        start_bucket(started_count_);
        ++started_count_;
    }
}

void Reducer::start_bucket(std::size_t at) {
    Flight& flight = flights_[at];
    throw_if_failed(flight.work);  // Of the step before.
    flight.issued_at = SteadyClock().now();
    const bool has_streams = group_.device().kind == DeviceKind::cuda;
    std::optional<StreamScope> beside;
    if (has_streams) {
        device_->fork();
        beside.emplace(group_, device_->side_stream());
    }
    if (options_.hook) {
        flight.work = options_.hook->start(group_, handles_[at]);
    } else {
        flight.work = group_.all_reduce(handles_[at].gradients, reduction());
    }
    throw_if_failed(flight.work);  // On a group that has ended it never began.
    if (options_.hook && has_streams) {
        options_.hook->finish(group_, handles_[at]);
    }
}

/// Of the buckets of this step, without a hook.
Reduction Reducer::reduction() const {
    if (options_.reduction == ReduceOp::avg && uneven_.divisor > 0) {
        return Reduction::premultiplied_sum(1.0 / uneven_.divisor);
    }
    return options_.reduction;
}

void Reducer::report_missing() {
    if (reported_count_ == slots_.size()) {
        return;
    }
    if (!options_.unused_parameters && uneven_.has_input) {
        const auto missing = std::ranges::find_if(
            slots_, [this](const Slot& slot) { return slot.reported_in != step_; });
        refuse("gradient " + std::to_string(missing - slots_.begin()) +
               " was not reported ready in this step (" +
               std::to_string(slots_.size() - reported_count_) + " of " +
               std::to_string(slots_.size()) +
               " are missing); if parameters may go unused, set the option unused_parameters");
    }
    for (std::size_t index = slots_.size(); index-- > 0;) {
        if (slots_[index].reported_in != step_) {
            report_without_gradient(index);
        }
    }
}

void Reducer::finish_step() {
    if (no_sync_depth_ > 0) {
        return;
    }
    report_missing();
    start_complete_buckets();
    const Instant waiting_since = SteadyClock().now();
    finish_buckets();
    statistics_.waited = group_.device().kind == DeviceKind::cpu
                             ? SteadyClock().now() - waiting_since
                             : Duration::zero();
    if (options_.unused_parameters) {
        agree_on_used();
    }
    copy_out();
    if (recording_) {
        rebuild_buckets();
    }
    const std::uint32_t root = uneven_.first_with_input;
    begin_step();
    if (options_.broadcast_buffers_each_step) {
        broadcast(buffers_, root);
    }
}

void Reducer::finish_buckets() {
    if (group_.device().kind == DeviceKind::cuda) {
        for (const Flight& flight : flights_) {
            throw_if_failed(flight.work);
        }
        device_->join();
    } else {
        Duration communication{};
        Instant free_at;  // when the group was done with the bucket before
        for (std::size_t at = 0; at < plan_.size(); ++at) {
            const Flight& flight = flights_[at];
            flight.work.wait();
            if (const auto done_at = flight.work.completed_at()) {
                communication +=
                    std::max(Duration::zero(), *done_at - std::max(free_at, flight.issued_at));
                free_at = std::max<Instant>(free_at, *done_at);
            }
            if (options_.hook) {
                options_.hook->finish(group_, handles_[at]);
            }
        }
        statistics_.communication = communication;
    }
    ++statistics_.step;
    statistics_.bytes = memory_->bytes();
    statistics_.bucket_count = plan_.size();
}

void Reducer::agree_on_used() {
    for (std::size_t index = 0; index < slots_.size(); ++index) {
        used_[index] = slots_[index].contributed_in == step_ ? 1 : 0;
    }
    exchange_.maximum(used_);
}

// Called only when every bucket has arrived: a step is applied as a whole or not at all.
void Reducer::copy_out() {
    for (std::size_t index = 0; index < slots_.size(); ++index) {
        if (slots_[index].is_copied && (was_used(index) || !is_callers(index))) {
            const TensorView& in_bucket = memory_->in_bucket(index);
            device_->copy(place_of(index).data, in_bucket.data, in_bucket.bytes());
        }
    }
}

void Reducer::rebuild_buckets() {
    std::vector<std::int64_t> agreed(order_.begin(), order_.end());
    exchange_.broadcast(agreed, uneven_.first_with_input);
    const std::vector<std::size_t> order(agreed.begin(), agreed.end());
    std::vector<Bucket> plan = plan_buckets(gradients_of(parameters_), order, limits_of(options_));
    memory_->adopt(group_, plan);
    if (plan != plan_) {
        adopt_plan(std::move(plan));
    }
    kept_order_.learn(order);
    recording_ = false;
    order_ = {};
}

void Reducer::reduce_gradients() {
    for (std::size_t index = uneven_.has_input ? slots_.size() : 0; index-- > 0;) {
        gradient_ready(index);
    }
    finish_step();
}

std::vector<std::int64_t> Reducer::gather_before_step(std::int64_t fact) {
    if (reported_count_ > 0 || no_sync_depth_ > 0) {
        refuse("Join::next() in the middle of a step, or under no_sync");
    }
    return exchange_.gather(std::span(&fact, 1));
}

void Reducer::begin_no_sync() {
    if (reported_count_ > 0) {
        refuse("no_sync in the middle of a step: gradients were reported already");
    }
    ++no_sync_depth_;
}

bool Reducer::was_used(std::size_t index) const {
    if (index >= slots_.size()) {
        check_reportable(index);
    }
    return !options_.unused_parameters || used_[index] != 0;
}

void Reducer::broadcast_parameters(std::uint32_t root) {
    std::vector<TensorView> tensors;
    for (const Parameter& parameter : parameters_) {
        tensors.push_back(parameter.value);
    }
    tensors.insert(tensors.end(), buffers_.begin(), buffers_.end());
    broadcast(tensors, root);
}

void Reducer::broadcast_buffers() {
    broadcast(buffers_, 0);
}

void Reducer::broadcast(std::span<const TensorView> tensors, std::uint32_t root) {
    issue_in_batches(
        group_, tensors.size(), [&](std::size_t i) { return group_.broadcast(tensors[i], root); },
        [](const Work& work) { work.wait(); });
}

std::optional<ReplicaDifference> Reducer::find_replica_difference() {
    return ddp::find_replica_difference(exchange_, *device_, parameters_);
}

}  // namespace regroup::ddp
