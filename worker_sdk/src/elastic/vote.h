// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>

namespace regroup::elastic {

/// The vote of one rank at the end of a step.
struct Ballot {
    std::uint64_t step = 0;     ///< Committed steps before this one.
    std::uint64_t samples = 0;  ///< Taken for this step.
    bool finishes = false;      ///< True to finish the training, false to commit the step.
    bool pauses = false;        ///< This rank knows that the round must end at this boundary.
};

/// Returns when every rank has called it: then each has done its part of the step, and none is
/// lost. Returns true if any rank pauses: the same result on all ranks. Throws Error
/// `invalid_argument` naming the difference if the ballots differ; otherwise as the group.
[[nodiscard]] bool vote(ProcessGroup& group, const Ballot& ballot);

}  // namespace regroup::elastic
