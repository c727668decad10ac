// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <utility>

#include "worker_sdk/src/ddp/reducer.h"

namespace regroup {

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
    return reducer_->gradient(index);
}

void DistributedDataParallel::zero_gradients() {
    reducer_->zero_gradients();
}

void DistributedDataParallel::gradient_ready(std::size_t index) {
    reducer_->gradient_ready(index);
}

void DistributedDataParallel::gradient_unused(std::size_t index) {
    reducer_->gradient_unused(index);
}

void DistributedDataParallel::finish_step() {
    reducer_->finish_step();
}

void DistributedDataParallel::reduce_gradients() {
    reducer_->reduce_gradients();
}

DistributedDataParallel::NoSync::NoSync(ddp::Reducer& reducer) : reducer_(reducer) {
    reducer_.begin_no_sync();
}

DistributedDataParallel::NoSync::~NoSync() {
    reducer_.end_no_sync();
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
    return NoSync(*reducer_);
}

bool DistributedDataParallel::was_used(std::size_t index) const {
    return reducer_->was_used(index);
}

void DistributedDataParallel::broadcast_parameters(std::uint32_t root) {
    reducer_->broadcast_parameters(root);
}

void DistributedDataParallel::broadcast_buffers() {
    reducer_->broadcast_buffers();
}

std::optional<ReplicaDifference> DistributedDataParallel::find_replica_difference() {
    return reducer_->find_replica_difference();
}

std::span<const Bucket> DistributedDataParallel::buckets() const noexcept {
    return reducer_->buckets();
}

bool DistributedDataParallel::buckets_are_final() const noexcept {
    return reducer_->buckets_are_final();
}

std::vector<TensorView> DistributedDataParallel::gradients() const {
    return reducer_->gradients();
}

std::size_t DistributedDataParallel::parameter_count() const noexcept {
    return reducer_->parameter_count();
}

const Buffer& DistributedDataParallel::gradient_memory() const noexcept {
    return reducer_->gradient_memory();
}

StepStatistics DistributedDataParallel::statistics() const noexcept {
    return reducer_->statistics();
}

}  // namespace regroup
