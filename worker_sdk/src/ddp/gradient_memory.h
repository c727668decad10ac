// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <span>
#include <vector>

#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::ddp {

/// All buckets, one after another in one piece of the group's memory. Its size does not depend on
/// the plan, so that another plan only moves gradients within it.
class GradientMemory {
   public:
    /// Allocates (a collective of the group). `gradients` tells count and dtype of each.
    GradientMemory(ProcessGroup& group, std::span<const TensorView> gradients,
                   std::span<const Bucket> plan);

    /// The place of gradient `index`.
    [[nodiscard]] const TensorView& gradient(std::size_t index) const { return views_[index]; }
    [[nodiscard]] const TensorView& bucket(std::size_t index) const { return buckets_[index]; }
    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes; }

    /// Lays everything out by `plan`, of the same gradients, with what the gradients hold.
    void rearrange(std::span<const Bucket> plan, GradientDevice& device);

   private:
    void lay_out(std::span<const Bucket> plan);

    Buffer buffer_;
    std::vector<TensorView> views_;    // by parameter
    std::vector<TensorView> buckets_;  // by place in the plan
};

}  // namespace regroup::ddp
