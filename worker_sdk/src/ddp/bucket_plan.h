// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/distributed_data_parallel.h>

#include <cstddef>
#include <span>
#include <vector>

namespace regroup::ddp {

/// Where each gradient begins, in memory and on the wire: enough for any vector instruction.
inline constexpr std::size_t kGradientAlignment = 64;

/// The bytes of a gradient with its padding.
[[nodiscard]] std::size_t padded_bytes(ConstTensorView gradient) noexcept;

struct BucketLimits {
    std::size_t first_bytes_max = 0;  ///< Of the bucket that is opened first.
    std::size_t bytes_max = 0;        ///< Of all others.
};

/// Packs `gradients`, taken in `order`, into buckets of one dtype each; a gradient above the limit
/// has its own bucket. The buckets are in the order in which they become complete if the gradients
/// come in `order`. Only counts and dtypes matter. Deterministic, so that all ranks agree without
/// communication.
[[nodiscard]] std::vector<Bucket> plan_buckets(std::span<const TensorView> gradients,
                                               std::span<const std::size_t> order,
                                               const BucketLimits& limits);

/// count-1, ..., 1, 0: the order in which a backward pass usually yields gradients.
[[nodiscard]] std::vector<std::size_t> backward_order(std::size_t count);

}  // namespace regroup::ddp
