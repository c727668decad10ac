// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/gradient_memory.h"

#include <cstring>

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

}  // namespace

GradientMemory::GradientMemory(ProcessGroup& group, std::span<const TensorView> gradients,
                               std::span<const Bucket> plan)
    : buffer_(group.allocate(total_bytes(plan))), views_(gradients.begin(), gradients.end()) {
    for (TensorView& view : views_) {
        view.device = buffer_.device;
    }
    lay_out(plan);
}

void GradientMemory::lay_out(std::span<const Bucket> plan) {
    auto* at = static_cast<std::byte*>(buffer_.data);
    buckets_.clear();
    for (const Bucket& bucket : plan) {
        buckets_.emplace_back(at, bucket.bytes / item_bytes(bucket.dtype), bucket.dtype,
                              buffer_.device);
        for (const std::size_t index : bucket.parameters) {
            views_[index].data = at;
            at += padded_bytes(views_[index]);
        }
    }
    ENSURE(at == static_cast<std::byte*>(buffer_.data) + buffer_.bytes);
}

// By way of the host, also from a GPU: it happens once, and takes no memory there.
void GradientMemory::rearrange(std::span<const Bucket> plan, GradientDevice& device) {
    std::vector<std::byte> before(buffer_.bytes);
    std::vector<std::byte> after(buffer_.bytes);
    device.read(before.data(), buffer_.data, buffer_.bytes);
    const auto offset_of = [this](const TensorView& view) {
        return static_cast<std::byte*>(view.data) - static_cast<std::byte*>(buffer_.data);
    };
    const std::vector<TensorView> old_views = views_;
    lay_out(plan);
    for (std::size_t index = 0; index < views_.size(); ++index) {
        if (views_[index].bytes() > 0) {
            std::memcpy(after.data() + offset_of(views_[index]),
                        before.data() + offset_of(old_views[index]), views_[index].bytes());
        }
    }
    device.write(buffer_.data, after.data(), buffer_.bytes);
}

}  // namespace regroup::ddp
