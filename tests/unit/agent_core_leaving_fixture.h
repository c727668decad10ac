// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/core/messages.h"
#include "tests/unit/agent_core_elastic_fixture.h"

namespace regroup::agent {

/// A node of two elastic workers in round 1 that has to leave the job.
class AgentCoreLeavingTest : public AgentCoreElasticTest {
   protected:
    void stop() { hear(rendezvous::Stop{RoundId{1}, "another node is lost"}); }
    /// Both workers are out of the round and hold state.
    void stop_and_suspend() {
        stop();
        both_suspend();
        effects.clear();
    }
    void close(int exit_code) {
        rendezvous::Verdict verdict;
        verdict.exit_code = exit_code;
        hear(rendezvous::Closed{verdict});
    }
    [[nodiscard]] bool told_to_save_at_once() const {
        const auto pauses = all<PauseWorkers>();
        return !pauses.empty() && pauses.back().leave && pauses.back().at_once;
    }
};

}  // namespace regroup::agent
