// SPDX-License-Identifier: Apache-2.0
// Work that one rank does for all: printing, writing files, downloading data.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <functional>
#include <string_view>

namespace regroup {

/// Prints `line` and a line feed on rank 0, and nothing on other ranks. It writes the line at once
/// and in one piece, also into a pipe or a file.
void log_main(const Context& context, std::string_view line);

/// Runs `action` on rank 0 while the other ranks wait, and returns on all ranks when it is done, so
/// that they can read the files that it wrote. If it throws a std::exception, run_on_main throws on
/// every rank: on rank 0 that exception, on the others an Error with the same sentence, and with
/// the same code if it was an Error (else `system`). So an error on rank 0, for instance a full
/// disk, does not leave the other ranks in a time-out.
///
/// Called by every rank, in the same order among its collectives. The others wait for at most the
/// group's timeout. `group` must work on host memory. Throws also as broadcast.
void run_on_main(ProcessGroup& group, const std::function<void()>& action);

}  // namespace regroup
