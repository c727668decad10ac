// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/agent_core.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// An agent of node "a" that has done nothing yet, for the tests of checkers.
inline agent::AgentCore agent_of(const rendezvous::JobPolicy& policy) {
    agent::AgentConfig config;
    config.node = "a";
    config.policy = policy;
    config.offer.name = "a";
    return agent::AgentCore(config, kStart);
}

}  // namespace regroup::simulation
