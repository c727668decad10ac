// SPDX-License-Identifier: Apache-2.0
//
// The cause that names nodes lost together.
#include <gtest/gtest.h>

#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

class RendezvousLosses : public RendezvousPlanned {
   protected:
    void begin_with(const std::vector<std::string>& nodes) {
        begin(policy_of(1, static_cast<std::uint32_t>(nodes.size())), nodes);
    }
    /// All of them fall silent at once.
    void fall_silent(const std::vector<std::string>& nodes) {
        for (const std::string& node : nodes) {
            job.silence(node);
        }
        job.pass(seconds(4));
    }
};

TEST_F(RendezvousLosses, CauseNamesAllNodesLostTogether) {
    begin_with({"a", "b", "c"});
    fall_silent({"b", "c"});
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.assignment("a").reason, "node b and node c are lost: silent for 3.0 s");
    job.resumed("a", 11);
    EXPECT_EQ(job.core.status(job.now).incidents.at(0).cause,
              "node b and node c are lost: silent for 3.0 s");
}

TEST_F(RendezvousLosses, CauseNamesThreeLostNodesAndCountsTheOthers) {
    begin_with({"a", "b", "c", "d", "e", "f"});
    fall_silent({"b", "c", "d"});
    job.suspend({"a", "e", "f"}, 10);
    EXPECT_EQ(job.assignment("a").reason, "node b, node c and node d are lost: silent for 3.0 s");
    begin_with({"a", "b", "c", "d", "e", "f"});
    fall_silent({"b", "c", "d", "e", "f"});
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.assignment("a").reason,
              "node b, node c, node d and 2 more are lost: silent for 3.0 s");
}

TEST_F(RendezvousLosses, CauseNamesNodesLostInDifferentWaysOneByOne) {
    begin_with({"a", "b", "c"});
    job.leave("c");
    job.killed("b");
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.assignment("a").reason,
              "node c left: SIGTERM; node b left: its agent was killed");
}

TEST_F(RendezvousLosses, SuspendedNodeThatIsLostIsNamed) {
    begin_with({"a", "b", "c"});
    job.killed("b");
    job.suspend({"c"}, 10);
    job.killed("c");
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.assignment("a").reason, "node b and node c left: their agent was killed");
}

TEST_F(RendezvousLosses, NodeLostBeforeTheNextRoundIsNamed) {
    begin(policy_of(3, 3), {"a", "b", "c"});
    job.killed("b");
    job.suspend({"a", "c"}, 10);
    ASSERT_EQ(job.core.phase(), Phase::forming);
    job.killed("c");
    job.join_all({"d", "e"});
    EXPECT_EQ(job.assignment("a").reason, "node b and node c left: their agent was killed");
    job.resumed("a", 11);
    EXPECT_EQ(job.core.status(job.now).incidents.at(0).cause,
              "node b and node c left: their agent was killed");
}

TEST(RendezvousNodes, ACopyGoesOnAlone) {
    Job job(fixed_policy(2));
    job.join_all({"a", "b"});
    RendezvousCore copy = job.core;
    static_cast<void>(job.core.step(job.now, NodeLeft{"a", "lost", true}));
    EXPECT_FALSE(job.core.knows("a"));
    ASSERT_TRUE(copy.has_member("a"));
    const Effects effects = copy.step(job.now, NodeReported{"a", job.report_of("a")});
    ASSERT_EQ(effects.size(), 1U);
    EXPECT_EQ(effects[0].node, "a");
    EXPECT_TRUE(std::holds_alternative<Assign>(effects[0].message));
}

TEST(RendezvousNodes, NodesThatAreLostAtOnceAreLostByTheirIds) {
    Job job(fixed_policy(3));
    job.join_all({"c", "a", "b"});
    static_cast<void>(job.core.step(job.now, Restarted{}));
    job.now += RendezvousCore(job.core).absence_limit();
    static_cast<void>(job.core.advance(job.now));
    std::vector<std::string> lost;
    for (const JobEvent& event : job.core.job_events()) {
        if (event.kind == JobEvent::Kind::lost) {
            lost.push_back(event.node);
        }
    }
    EXPECT_EQ(lost, (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace regroup::rendezvous
