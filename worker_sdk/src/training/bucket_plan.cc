// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>

namespace regroup {

std::vector<Bucket> plan_buckets(std::span<const Parameter> parameters, std::size_t bytes_max) {
    std::vector<Bucket> buckets;
    for (std::size_t index = parameters.size(); index-- > 0;) {
        const TensorView& gradient = parameters[index].gradient;
        const std::size_t bytes = gradient.bytes();
        // The neighbour is the parameter that the last bucket took last.
        const bool fits = !buckets.empty() && bytes <= bytes_max &&
                          buckets.back().bytes <= bytes_max - bytes &&
                          parameters[index + 1].gradient.dtype == gradient.dtype;
        if (fits) {
            buckets.back().first = index;
            buckets.back().bytes += bytes;
        } else {
            buckets.push_back({index, index + 1, bytes});
        }
    }
    return buckets;
}

}  // namespace regroup
