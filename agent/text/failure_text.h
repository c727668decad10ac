// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// "ended by SIGKILL", "exited with code 3".
[[nodiscard]] std::string end_text(const rendezvous::WorkerFailure& failure);

/// The known facts of a worker's failure, on indented lines: rank, node, host, pid, end, time, file
/// of the output, and its last lines.
[[nodiscard]] std::vector<std::string> failure_lines(const rendezvous::WorkerFailure& failure);

}  // namespace regroup::agent
