// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace stand_in_nccl {

/// Injected faults. Counts of operations begin at 1 for each communicator.
struct Faults {
    bool init_never = false;
    int async_error_at = 0;
    int system_error_at = 0;
    int op_never_at = 0;
    int launch_never_at = 0;
    bool split_error = false;  ///< A split makes its child and then fails.
    bool split_wrong = false;  ///< A communicator has one rank more than was asked for.
    bool graph_alive = false;  ///< While this is set, no resource is freed.
    int version = 0;           ///< Of NCCL, if not 0.
    int rank = -1;             ///< Of the communicator; all of them if negative.

    [[nodiscard]] bool concerns(int some_rank) const { return rank < 0 || rank == some_rank; }
};

[[nodiscard]] Faults faults();
/// Adds one line.
void note(const std::string& event);
/// Records a violation of NCCL's rules by the caller.
void note_violation(const std::string& what);

}  // namespace stand_in_nccl
