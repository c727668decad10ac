// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace regroup::ddp {

/// The places of the gradients and of the buckets, in the group's memory.
///
/// Each gradient has one place for its whole life, and those of one dtype lie side by side. A
/// bucket whose gradients are neighbours is reduced right there. Any other bucket, which only a
/// later plan can have, has memory of its own: its gradients are copied there and back.
class GradientMemory {
   public:
    /// Places the gradients in the order of `plan`, and adopts it. Allocates (a collective of the
    /// group). `gradients` tells count and dtype of each.
    GradientMemory(ProcessGroup& group, std::span<const TensorView> gradients,
                   std::span<Bucket> plan);

    /// Finds the places of other buckets of the same gradients. Sorts the gradients of each bucket
    /// as they lie in memory. Allocates memory for the buckets that need it (a collective).
    void adopt(ProcessGroup& group, std::span<Bucket> plan);

    /// The place of gradient `index`.
    [[nodiscard]] const TensorView& gradient(std::size_t index) const { return gradients_[index]; }
    /// Its place within its bucket: the same one if the bucket is reduced where it lies.
    [[nodiscard]] const TensorView& in_bucket(std::size_t index) const { return in_bucket_[index]; }
    [[nodiscard]] const TensorView& bucket(std::size_t at) const { return buckets_[at]; }
    /// The gradients that `is_wanted`, neighbours of one dtype as one tensor with their padding.
    [[nodiscard]] std::vector<TensorView> runs(
        const std::function<bool(std::size_t)>& is_wanted) const;
    /// The gradients, without the memory of copied buckets.
    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.bytes; }

   private:
    void place(std::span<const Bucket> plan);
    /// True if the gradients of `bucket`, which are sorted, have no others between them.
    [[nodiscard]] bool are_neighbours(const Bucket& bucket) const;

    Buffer buffer_;
    Buffer copies_;                       // of all copied buckets
    std::vector<TensorView> gradients_;   // by parameter
    std::vector<TensorView> in_bucket_;   // by parameter
    std::vector<std::size_t> in_memory_;  // parameters in the order of their places
    std::vector<std::size_t> position_;   // by parameter, in that order
    std::vector<TensorView> buckets_;     // by place in the plan
};

}  // namespace regroup::ddp
