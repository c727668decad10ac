// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include "rendezvous/worker_link/messages.h"

namespace regroup::link {

/// The identity of this worker in the round that it was given a place in, with a store connection
/// and a scope of its own. What no place tells (transport, limits) is as in `base`.
[[nodiscard]] Context context_of(const Context& base, const worker_link::AssignWorker& place);

}  // namespace regroup::link
