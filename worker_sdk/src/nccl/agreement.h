// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {

/// Gives `mine` to all ranks of `lane` and returns theirs, by rank. Counts as one collective, which
/// `signature` describes. If it fails, the group ends, so that no rank waits for this one. Throws
/// the Errors of an operation, after the name of the `purpose`.
[[nodiscard]] std::vector<Proposal> exchange(Lane& lane, const std::string& purpose,
                                             const Signature& signature, const Proposal& mine);

}  // namespace regroup::nccl
