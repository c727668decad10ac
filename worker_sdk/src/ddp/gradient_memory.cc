// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/gradient_memory.h"

#include <algorithm>
#include <map>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/ddp/bucket_plan.h"

namespace regroup::ddp {
namespace {

std::size_t total_bytes(std::span<const Bucket> plan) {
    std::size_t bytes = 0;
    for (const Bucket& bucket : plan) {
        bytes += bucket.bytes;
    }
    return bytes;
}

std::byte* end_of(const TensorView& gradient) {
    return static_cast<std::byte*>(gradient.data) + padded_bytes(gradient);
}

}  // namespace

GradientMemory::GradientMemory(ProcessGroup& group, std::span<const TensorView> gradients,
                               std::span<Bucket> plan)
    : buffer_(group.allocate(total_bytes(plan))),
      gradients_(gradients.begin(), gradients.end()),
      position_(gradients.size()) {
    place(plan);
    adopt(group, plan);
}

void GradientMemory::place(std::span<const Bucket> plan) {
    std::map<DType, std::vector<std::size_t>> by_dtype;
    for (const Bucket& bucket : plan) {
        std::vector<std::size_t>& list = by_dtype[bucket.dtype];
        list.insert(list.end(), bucket.parameters.begin(), bucket.parameters.end());
    }
    auto* at = static_cast<std::byte*>(buffer_.data);
    for (const auto& [dtype, list] : by_dtype) {
        for (const std::size_t index : list) {
            gradients_[index].device = buffer_.device;
            gradients_[index].data = at;
            position_[index] = in_memory_.size();
            in_memory_.push_back(index);
            at = end_of(gradients_[index]);
        }
    }
    ENSURE(at == static_cast<std::byte*>(buffer_.data) + buffer_.bytes);
}

bool GradientMemory::are_neighbours(const Bucket& bucket) const {
    const auto torn =
        std::ranges::adjacent_find(bucket.parameters, [this](std::size_t one, std::size_t next) {
            return end_of(gradients_[one]) != gradients_[next].data;
        });
    return torn == bucket.parameters.end();
}

void GradientMemory::adopt(ProcessGroup& group, std::span<Bucket> plan) {
    std::size_t copied_bytes = 0;
    for (Bucket& bucket : plan) {
        std::ranges::sort(bucket.parameters, {}, [this](std::size_t i) { return position_[i]; });
        copied_bytes += are_neighbours(bucket) ? 0 : bucket.bytes;
    }
    copies_ = copied_bytes > 0 ? group.allocate(copied_bytes) : Buffer{};
    auto* copied_at = static_cast<std::byte*>(copies_.data);
    in_bucket_ = gradients_;
    buckets_.clear();
    for (const Bucket& bucket : plan) {
        if (!are_neighbours(bucket)) {
            for (const std::size_t index : bucket.parameters) {
                in_bucket_[index].data = copied_at;
                copied_at = end_of(in_bucket_[index]);
            }
        }
        buckets_.emplace_back(in_bucket_[bucket.parameters.front()].data,
                              bucket.bytes / item_bytes(bucket.dtype), bucket.dtype,
                              buffer_.device);
    }
}

std::vector<TensorView> GradientMemory::runs(
    const std::function<bool(std::size_t)>& is_wanted) const {
    std::vector<TensorView> runs;
    bool continues = false;
    for (const std::size_t index : in_memory_) {
        const TensorView& gradient = gradients_[index];
        if (!is_wanted(index)) {
            continues = false;
            continue;
        }
        if (!continues || runs.back().dtype != gradient.dtype) {
            runs.emplace_back(gradient.data, 0, gradient.dtype, gradient.device);
        }
        runs.back().count += padded_bytes(gradient) / item_bytes(gradient.dtype);
        continues = true;
    }
    return runs;
}

}  // namespace regroup::ddp
