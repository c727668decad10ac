// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace regroup {

/// Operations in one batch: enough to overlap, and far below the limit of a group.
inline constexpr std::size_t kBatchMax = 256;

/// Issues `count` operations in batches: `issue(i)` returns the Work of the i-th. Calls `complete`
/// with each Work of a batch before the next batch begins.
template <class Issue, class Complete>
void issue_in_batches(ProcessGroup& group, std::size_t count, const Issue& issue,
                      const Complete& complete) {
    for (std::size_t first = 0; first < count; first += kBatchMax) {
        std::vector<Work> works;
        OperationBatch batch(group);
        for (std::size_t i = first; i < std::min(count, first + kBatchMax); ++i) {
            works.push_back(issue(i));
        }
        batch.start();
        for (const Work& work : works) {
            complete(work);
        }
    }
}

}  // namespace regroup
