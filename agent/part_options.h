// SPDX-License-Identifier: Apache-2.0
//
// Derives the options of an agent's parts from its own.
#pragma once

#include "agent/agent.h"
#include "agent/watch/node_watch.h"

namespace regroup::agent {

[[nodiscard]] store::StoreServer::Options store_options(const AgentOptions& options);
[[nodiscard]] WorkerGroupOptions group_options(const AgentOptions& options);
[[nodiscard]] NodeWatchOptions watch_options(const AgentOptions& options);

}  // namespace regroup::agent
