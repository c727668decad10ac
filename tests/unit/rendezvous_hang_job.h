// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {

inline RankPosition position_at(std::uint32_t rank, std::uint64_t step, std::uint64_t operations,
                                bool waiting, std::string doing = {}) {
    return {rank, step, operations, waiting, std::move(doing)};
}

/// Two nodes of two elastic workers, at step 10.
class RendezvousHang : public testing::Test {
   protected:
    RendezvousHang() { begin(policy()); }
    void begin(const JobPolicy& with) {
        job = Job(with);
        job.join_all({"a", "b"});
        job.run_elastic({"a", "b"}, 10);
        job.clear();
    }
    void all_wait_for_each_other() {
        NodeReport a = hanging(0);
        answer(a, 1, {position_at(0, 10, 5, true), position_at(1, 10, 5, true)});
        NodeReport b = hanging(2);
        answer(b, 1, {position_at(2, 10, 5, true), position_at(3, 10, 5, true)});
        job.tell("a", hanging(0));
        job.tell("a", a);
        job.tell("b", b);
    }
    static JobPolicy policy() {
        JobPolicy policy = fixed_policy(2);
        policy.restarts_max = 10;
        return policy;
    }
    /// Adds the positions of the workers to a report, as the answer to `alarm`.
    static void answer(NodeReport& report, std::uint32_t alarm,
                       std::vector<RankPosition> positions) {
        report.alarm = alarm;
        report.positions = std::move(positions);
    }
    NodeReport hanging(std::uint32_t rank, bool shared = false) const {
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::running, 10);
        report.hang = Hang{rank, "rank " + std::to_string(rank) + " stands still", shared};
        return report;
    }
    Job job{policy()};
};

}  // namespace regroup::rendezvous
