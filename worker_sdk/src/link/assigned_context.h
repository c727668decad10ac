// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::link {

/// The Context of this worker in the assigned round, with its own store connection and scope.
/// Transport and limits are those of `base`.
[[nodiscard]] Context context_of(const Context& base, const worker_link::AssignWorker& assigned);

/// Attaches this process to the agent that its environment names, unless it is attached or the
/// environment names none. Failures as attach_process. Any thread.
Result<void> attach_from_environment();

}  // namespace regroup::link
