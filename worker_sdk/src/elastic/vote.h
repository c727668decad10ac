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
    bool leaves = false;        ///< This rank knows that its node leaves at this boundary.
    std::uint64_t digest = 0;   ///< Of the registered state, where the ranks compare it.
};

/// The same on all ranks.
struct VoteResult {
    bool pauses = false;  ///< Some rank pauses.
    bool leaves = false;  ///< Some rank leaves.
    bool agrees = true;   ///< All ranks have the same digest.
};

/// Returns when every rank has called it: then each has done its part of the step, and none is
/// lost. Throws Error `invalid_argument` naming the difference if the ballots differ in step,
/// samples or `finishes`; otherwise as the group.
[[nodiscard]] VoteResult vote(ProcessGroup& group, const Ballot& ballot);

}  // namespace regroup::elastic
