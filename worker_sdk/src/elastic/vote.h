// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>

namespace regroup::elastic {

/// What one rank says at the end of a step.
struct Ballot {
    std::uint64_t step = 0;     ///< Committed ones, before this.
    std::uint64_t samples = 0;  ///< That it has taken for this step.
    bool finishes = false;      ///< Training is over; else the step is to be committed.
    bool pauses = false;        ///< It knows that the round is to end at this boundary.
};

/// Returns once every rank has come here: then each of them has done its part of the step, and none
/// has been lost. True if any of them pauses: the same answer everywhere. Throws Error
/// `invalid_argument` if the ranks are at different things, saying which; otherwise what the group
/// throws.
[[nodiscard]] bool vote(ProcessGroup& group, const Ballot& ballot);

}  // namespace regroup::elastic
