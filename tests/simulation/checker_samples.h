// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "agent/core/agent_core.h"
#include "rendezvous/core/rendezvous_core.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

/// An idle agent of node "a", for the tests of checkers.
inline agent::AgentCore agent_of(const rendezvous::JobPolicy& policy) {
    agent::AgentConfig config;
    config.node = "a";
    config.policy = policy;
    config.offer.name = "a";
    return agent::AgentCore(config, kStart);
}

/// One checker, and the state that it is shown.
class CheckerFixture : public testing::Test {
   protected:
    explicit CheckerFixture(rendezvous::JobPolicy job_policy = {})
        : policy(std::move(job_policy)), core(policy), idle(agent_of(policy)) {}

    void daemon_hears(const rendezvous::Event& event) {
        checker->on_daemon_event(now, event);
        checker->on_daemon_effects(now, core, core.step(now, event));
    }
    [[nodiscard]] std::string violation() const { return checker->violation().value_or(""); }

    rendezvous::JobPolicy policy;
    rendezvous::RendezvousCore core;
    agent::AgentCore idle;  ///< Of host 0.
    std::unique_ptr<Checker> checker;
    Instant now = kStart;
};

}  // namespace regroup::simulation
