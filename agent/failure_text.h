// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// What is known of a worker's failure, one indented line each, the last with a newline: rank,
/// node, host, pid, how it ended, when, where its output is, and its last lines.
[[nodiscard]] std::string failure_text(const rendezvous::WorkerFailure& failure);

}  // namespace regroup::agent
