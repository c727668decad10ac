// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <type_traits>
#include <vector>

namespace regroup::elastic {

/// The values of all ranks, by rank; a collective.
template <class T>
[[nodiscard]] std::vector<T> gather(ProcessGroup& group, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    std::vector<T> all(group.world_size());
    group
        .all_gather(ConstTensorView(&mine, sizeof mine, DType::uint8),
                    TensorView(all.data(), all.size() * sizeof mine, DType::uint8))
        .wait();
    return all;
}

}  // namespace regroup::elastic
