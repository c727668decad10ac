// SPDX-License-Identifier: Apache-2.0
//
// Derives the options of an agent's parts from its own.
#pragma once

#include "agent/agent.h"
#include "agent/watch/node_watch.h"

namespace regroup::agent {

[[nodiscard]] RoundStoreOptions round_store_options(const AgentOptions& options,
                                                    OutputRelay& output);
[[nodiscard]] WorkerGroupOptions group_options(const AgentOptions& options);
[[nodiscard]] NodeWatchOptions watch_options(const AgentOptions& options);

}  // namespace regroup::agent
