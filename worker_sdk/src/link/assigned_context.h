// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::link {

/// The identity of this worker in the round that it was given a place in, with a store connection
/// and a scope of its own. What no place tells (transport, limits) is as in `base`.
[[nodiscard]] Context context_of(const Context& base, const worker_link::AssignWorker& place);

/// Attaches this process to the agent that its environment names, unless that is done; without one
/// there is nothing to do. Failures as attach_process. Any thread.
Result<void> attach_from_environment();

}  // namespace regroup::link
