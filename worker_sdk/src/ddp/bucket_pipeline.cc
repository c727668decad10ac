// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/bucket_pipeline.h"

#include <regroup/error.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "worker_sdk/src/ddp/stream_scope.h"

namespace regroup::ddp {
namespace {

/// Without waiting. On a GPU nobody waits for a Work: one that has failed must be looked at.
void throw_if_failed(const Work& work) {
    if (work.done()) {
        work.wait();
    }
}

}  // namespace

void BucketPipeline::adopt(std::vector<Bucket> plan, const GradientMemory& memory) {
    plan_ = std::move(plan);
    flights_.assign(plan_.size(), {});
    handles_.clear();
    for (std::size_t at = 0; at < plan_.size(); ++at) {
        handles_.push_back({.index = at,
                            .is_last = at + 1 == plan_.size(),
                            .parameters = plan_[at].parameters,
                            .gradients = memory.bucket(at),
                            .reduction = options_.reduction,
                            .stream = device_.side_stream()});
    }
    bytes_ = memory.bytes();
    if (options_.hook) {
        options_.hook->prepare(group_, handles_);
    }
}

void BucketPipeline::begin_step(std::uint32_t divisor) {
    started_count_ = 0;
    for (std::size_t at = 0; at < plan_.size(); ++at) {
        flights_[at].missing_count = plan_[at].parameters.size();
    }
    reduction_ = options_.reduction == ReduceOp::avg && divisor > 0
                     ? Reduction::premultiplied_sum(1.0 / divisor)
                     : Reduction(options_.reduction);
}

void BucketPipeline::start_complete() {
    while (started_count_ < plan_.size() && flights_[started_count_].missing_count == 0) {
        start(started_count_);
        ++started_count_;
    }
}

void BucketPipeline::start(std::size_t at) {
    Flight& flight = flights_[at];
    throw_if_failed(flight.work);  // Of the step before.
    flight.issued_at = SteadyClock().now();
    const bool has_streams = group_.device().kind == DeviceKind::cuda;
    std::optional<StreamScope> beside;
    if (has_streams) {
        device_.fork();
        beside.emplace(group_, device_.side_stream());
    }
    if (options_.hook) {
        flight.work = options_.hook->start(group_, handles_[at]);
    } else {
        flight.work = group_.all_reduce(handles_[at].gradients, reduction_);
    }
    throw_if_failed(flight.work);  // On a group that has ended it never began.
    if (options_.hook && has_streams) {
        options_.hook->finish(group_, handles_[at]);
    }
}

void BucketPipeline::finish() {
    start_complete();
    if (group_.device().kind == DeviceKind::cuda) {
        for (const Flight& flight : flights_) {
            throw_if_failed(flight.work);
        }
        device_.join();
    } else {
        await_on_host();
    }
    ++statistics_.step;
    statistics_.bytes = bytes_;
    statistics_.bucket_count = plan_.size();
}

void BucketPipeline::await_on_host() {
    const Instant waiting_since = SteadyClock().now();
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
    statistics_.waited = SteadyClock().now() - waiting_since;
}

void BucketPipeline::give_up() noexcept {
    for (const Flight& flight : std::span(flights_).first(started_count_)) {
        try {
            flight.work.wait();
        } catch (const Error&) {
            continue;  // The destructor has no caller to report to.
        }
    }
}

}  // namespace regroup::ddp
