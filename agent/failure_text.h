// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// The known facts of a worker's failure, on indented lines: rank, node, host, pid, end, time, file
/// of the output, and its last lines. Ends with a newline.
[[nodiscard]] std::string failure_text(const rendezvous::WorkerFailure& failure);

}  // namespace regroup::agent
