// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/bucket_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace regroup::ddp {
namespace {

/// A bucket while it is being filled.
struct OpenBucket {
    Bucket bucket;
    std::size_t bytes_max = 0;
    std::size_t complete_at = 0;  ///< The place in the order that completes it.
};

}  // namespace

std::size_t padded_bytes(ConstTensorView gradient) noexcept {
    return (gradient.bytes() + kGradientAlignment - 1) / kGradientAlignment * kGradientAlignment;
}

std::vector<Bucket> plan_buckets(std::span<const TensorView> gradients,
                                 std::span<const std::size_t> order, const BucketLimits& limits) {
    std::vector<OpenBucket> buckets;
    std::map<DType, std::size_t> last_of;  // by dtype, the bucket that may take more
    for (std::size_t at = 0; at < order.size(); ++at) {
        const TensorView& gradient = gradients[order[at]];
        const std::size_t bytes = padded_bytes(gradient);
        const auto last = last_of.find(gradient.dtype);
        const bool fits =
            last != last_of.end() && bytes <= buckets[last->second].bytes_max &&
            buckets[last->second].bucket.bytes <= buckets[last->second].bytes_max - bytes;
        if (!fits) {
            last_of[gradient.dtype] = buckets.size();
            buckets.push_back({.bucket = {.dtype = gradient.dtype},
                               .bytes_max = buckets.empty()
                                                ? std::min(limits.first_bytes_max, limits.bytes_max)
                                                : limits.bytes_max});
        }
        OpenBucket& open = buckets[last_of[gradient.dtype]];
        open.bucket.parameters.push_back(order[at]);
        open.bucket.bytes += bytes;
        open.complete_at = at;
    }
    std::ranges::sort(buckets, {}, &OpenBucket::complete_at);
    std::vector<Bucket> plan;
    plan.reserve(buckets.size());
    for (OpenBucket& open : buckets) {
        plan.push_back(std::move(open.bucket));
    }
    return plan;
}

std::vector<std::size_t> backward_order(std::size_t count) {
    std::vector<std::size_t> order(count);
    for (std::size_t at = 0; at < count; ++at) {
        order[at] = count - 1 - at;
    }
    return order;
}

}  // namespace regroup::ddp
