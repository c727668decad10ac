// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {

/// A running job of up to three nodes with elastic workers.

class RendezvousPlanned : public testing::Test {
   protected:
    RendezvousPlanned() { begin(policy_of(1, 3), {"a", "b"}); }
    static JobPolicy policy_of(std::uint32_t nodes_min, std::uint32_t nodes_max) {
        JobPolicy policy = small_policy();
        policy.nodes_min = nodes_min;
        policy.nodes_max = nodes_max;
        policy.standbys_max = 1;
        return policy;
    }
    void begin(const JobPolicy& policy, const std::vector<std::string>& nodes) {
        job = Job(policy);
        for (const std::string& node : nodes) {
            job.join(node);
        }
        job.pass(seconds(5));
        job.run_elastic(nodes, 10);
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.clear();
    }
    void leave(const std::string& node, const std::string& why = "stopped by SIGTERM") {
        NodeReport report = job.report_of(node);
        report.draining = why;
        job.tell(node, report);
    }
    Job job{policy_of(1, 3)};
};

}  // namespace regroup::rendezvous
