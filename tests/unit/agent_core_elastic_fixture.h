// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/unit/agent_core_fixture.h"

namespace regroup::agent {

/// An agent whose two workers keep their processes while rounds change.
class AgentCoreElasticTest : public AgentCoreTest {
   protected:
    // Both workers are elastic, in round 1.
    void SetUp() override {
        in_round(1);
        attach(0);
        attach(1);
        ASSERT_TRUE(core.report().elastic);
        effects.clear();
    }
    /// Another agent: a standby, whose workers are started ahead.
    void begin_as_standby() {
        restart();
        hear_that_it_is_a_standby();
    }
    void hear_that_it_is_a_standby() {
        rendezvous::Waiting waiting;
        waiting.standby = waiting.prestart = true;
        hear(waiting);
    }
    void attach(std::uint32_t local_rank) { feed(WorkerAttached{local_rank, true}); }
    void suspends(std::uint64_t round, std::uint32_t local_rank) {
        feed(WorkerSuspended{local_rank, RoundId{round}});
    }
    void suspends_at(std::uint64_t step, std::uint32_t local_rank) {
        feed(WorkerSuspended{local_rank, RoundId{1}, false, step});
    }
    void both_suspend(std::uint64_t step = 9) {
        suspends_at(step, 0);
        suspends_at(step, 1);
    }
    /// Both workers of round 1 end in order, and with them the agent.
    void expect_exit_when_both_have_left(int code) {
        exits(1, 0);
        EXPECT_FALSE(quit().has_value());
        exits(1, 1);
        expect_exit(code);
    }
    void prepare(bool leave) { hear(rendezvous::Prepare{RoundId{1}, leave, "a node joins"}); }
    [[nodiscard]] bool reported(rendezvous::NodeState state) const {
        const auto reports = sent<rendezvous::Report>();
        return !reports.empty() && reports.back().report.state == state;
    }
};

}  // namespace regroup::agent
