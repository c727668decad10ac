// SPDX-License-Identifier: Apache-2.0
// What one rank does for all: printing, writing files, fetching data.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <functional>
#include <string_view>

namespace regroup {

/// Prints `line` and a line feed on rank 0, and nothing elsewhere. It leaves the process at once
/// and in one piece, also into a pipe or a file.
void log_main(const Context& context, std::string_view line);

/// Runs `action` on rank 0 while the other ranks wait, and returns on all of them when it is done;
/// what it wrote to files is there for them then. If it throws a std::exception, run_on_main throws
/// on every rank: on rank 0 that exception, elsewhere an Error with the same sentence, and the same
/// code if it was an Error (else `system`). So a full disk under rank 0 ends no other rank in a
/// time-out.
///
/// Called by every rank, in the same order among its collectives. The others wait for as long as
/// the group's timeout allows. `group` must take host memory. Throws also as broadcast.
void run_on_main(ProcessGroup& group, const std::function<void()>& action);

}  // namespace regroup
