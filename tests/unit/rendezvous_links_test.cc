// SPDX-License-Identifier: Apache-2.0
//
// Broken connections between workers, and their causes.
#include <gtest/gtest.h>

#include "tests/fuzz/memory.h"
#include "tests/support/matchers.h"
#include "tests/unit/rendezvous_planned.h"

namespace regroup::rendezvous {
namespace {

constexpr const char* kNoStore =
    "node c gave the round up: it could no longer serve the store of the round";

/// Three nodes of two workers, a to c, with ranks 0 to 5.
class RendezvousLinks : public RendezvousPlanned {
   protected:
    RendezvousLinks() { begin(policy_of(1, 3), {"a", "b", "c"}); }
    void lose_peer(const std::string& node, std::uint32_t rank, std::uint32_t peer) {
        NodeReport report = job.report_of(node);
        report.broken_links.push_back({rank, peer, "closed the connection"});
        job.tell(node, report);
    }
    /// The node's workers have stopped. The node repeats its broken links, and reports that
    /// `failed` ended with an error that it had not announced.
    void end(const std::string& node, std::optional<std::uint32_t> failed = std::nullopt) {
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
        report.broken_links = job.report_of(node).broken_links;
        if (failed) {
            report.failure = error_on(node);
            report.failure->rank = *failed;
        }
        job.tell(node, report);
    }
    void give_up_for_store(const std::string& node) {
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
        report.store_spent = true;
        job.tell(node, report);
    }
    /// Expects the cause and the restart count of the second round.
    void expect_charge(const std::string& reason, std::uint32_t restarts) {
        ASSERT_EQ(job.core.phase(), Phase::training);
        EXPECT_EQ(job.assignment("a").restart_count, restarts);
        EXPECT_EQ(job.assignment("a").reason, reason);
    }
    void end_for_broken_link() {
        lose_peer("a", 1, 2);
        job.pass(seconds(1));
        ASSERT_EQ(job.core.phase(), Phase::ending);
    }
    void crash(const std::string& node) {
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
        report.failure = crash_on(node, SIGKILL);
        job.tell(node, report);
    }
    /// All suspend, the next round forms and trains.
    void recover(const std::vector<std::string>& nodes, std::uint64_t step) {
        job.suspend(nodes, step);
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.run_elastic(nodes, step);
        job.resumed(nodes.front(), step + 1);
    }
};

TEST_F(RendezvousLinks, BreakReportedByBothEndsEndsTheRoundAtOnceAsTheCause) {
    lose_peer("a", 1, 2);
    EXPECT_EQ(job.core.phase(), Phase::training) << "rank 2 may be dead";
    lose_peer("b", 2, 1);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    const std::string cause = "the connection between rank 1 on a and rank 2 on b broke";
    EXPECT_EQ(job.heard<Stop>("c").reason, cause);
    recover({"a", "b", "c"}, 10);
    EXPECT_EQ(job.assignment("a").restart_count, 0U) << "nobody's fault";
    const Incident& incident = job.heard<Recovered>("a").incident;
    EXPECT_EQ(incident.cause, cause);
    EXPECT_FALSE(incident.planned);
    EXPECT_EQ(incident.detect, Duration::zero());
}

TEST_F(RendezvousLinks, BreakReportedByOneEndIsTheCauseIfNothingExplainsItInTime) {
    lose_peer("a", 1, 2);
    lose_peer("c", 4, 3);
    job.pass(job.core.policy().regroup_window - milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::training);
    job.pass(milliseconds(1));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("b").reason,
              "the connection between rank 1 on a and rank 2 on b broke: rank 2 closed the "
              "connection");
    recover({"a", "b", "c"}, 10);
    EXPECT_EQ(job.heard<Recovered>("a").incident.detect, job.core.policy().regroup_window);
}

TEST_F(RendezvousLinks, DeathOfTheOtherEndExplainsABreak) {
    lose_peer("a", 1, 2);
    NodeReport report = job.report_of("b");
    report.state = NodeState::stopping;
    report.failure = crash_on("b", SIGKILL);
    job.tell("b", report);
    EXPECT_EQ(job.heard<Stop>("a").reason, "rank 0 on b was ended by SIGKILL");
    job.pass(seconds(1));
    recover({"a", "b", "c"}, 10);
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousLinks, DeathThatIsReportedLateStillExplainsABreak) {
    end_for_broken_link();
    job.suspend({"a", "c"}, 10);
    crash("b");
    ASSERT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").reason, "rank 0 on b was ended by SIGKILL");
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

// Once the others have ended or suspended, a worker that has not heard of it loses further peers.
TEST_F(RendezvousLinks, WorkerThatReportedALostPeerDoesNotExplainTheBreak) {
    for (const bool announced : {false, true}) {
        end_for_broken_link();
        job.suspend({"b", "c"}, 10);
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
        report.broken_links = {{1, 2, "closed the connection"}};
        report.failure = WorkerFailure{};
        report.failure->node = "a";
        report.failure->rank = 1;
        report.failure->exit_code = 1;
        report.failure->announced = announced;
        job.tell("a", report);
        ASSERT_EQ(job.core.phase(), Phase::training);
        EXPECT_EQ(job.assignment("a").restart_count, announced ? 1U : 0U);
        job.run_elastic({"a", "b", "c"}, 10);
    }
}

// Its peers have closed their connections: on the reporting node, and on another one.
TEST_F(RendezvousLinks, ErrorOfAWorkerThatNoPeerLostDoesNotExplainABreak) {
    end_for_broken_link();
    end("a", 0);
    end("c", 4);
    end("b");
    expect_charge(
        "the connection between rank 1 on a and rank 2 on b broke: rank 2 closed the connection",
        0);
}

TEST_F(RendezvousLinks, ErrorOfAWorkerThatAPeerLostExplainsABreak) {
    end_for_broken_link();
    end("c", 5);
    end("b", 2);
    end("a", 0);
    expect_charge("rank 2 on b exited with code 1", 1);
}

TEST_F(RendezvousLinks, WorkerThatReportedALostPeerDoesNotExplainABreakEvenIfAPeerLostIt) {
    lose_peer("a", 1, 2);
    lose_peer("c", 5, 1);
    job.pass(seconds(1));
    ASSERT_EQ(job.core.phase(), Phase::ending);
    end("a", 1);
    end("c", 5);
    end("b");
    expect_charge(
        "the connection between rank 1 on a and rank 2 on b broke: rank 2 closed the connection",
        0);
}

// Reports overtake each other.
TEST_F(RendezvousLinks, PeerMayReportTheLossAfterTheError) {
    lose_peer("a", 1, 2);
    job.pass(seconds(1));
    end("c", 4);
    end("a");
    NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
    report.broken_links = {{3, 4, "closed the connection"}};
    job.tell("b", report);
    expect_charge("rank 4 on c exited with code 1", 1);
}

// The others then close their connections, which may make another worker fail quickly.
TEST_F(RendezvousLinks, NoErrorExplainsABreakReportedByBothEnds) {
    lose_peer("a", 0, 4);
    lose_peer("a", 1, 2);
    lose_peer("b", 2, 1);
    ASSERT_EQ(job.core.phase(), Phase::ending);
    end("c", 4);
    end("a");
    end("b");
    expect_charge("the connection between rank 1 on a and rank 2 on b broke", 0);
}

TEST_F(RendezvousLinks, LostMemberExplainsErrorsWhileTheRoundStopsForABreak) {
    end_for_broken_link();
    end("b", 2);
    job.killed("c");
    end("a");
    EXPECT_THAT(describe(job.assignment("a").reason), HasSubstr("node c left"));
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
}

TEST_F(RendezvousLinks, LossOfTheOtherNodeExplainsABreak) {
    lose_peer("a", 1, 2);
    job.pass(milliseconds(100));
    job.disconnect("b");
    job.silence("b");
    job.pass(milliseconds(150));
    EXPECT_EQ(job.core.phase(), Phase::training) << "the node is about to be lost, or to speak";
    job.pass(milliseconds(100));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_THAT(describe(job.heard<Stop>("a").reason), HasSubstr("node b is lost"));
}

TEST_F(RendezvousLinks, NodeThatComesBackDoesNotExplainABreak) {
    lose_peer("a", 1, 2);
    job.disconnect("b");
    job.beat("b");
    job.pass(milliseconds(250));
    EXPECT_THAT(describe(job.heard<Stop>("a").reason),
                HasSubstr("between rank 1 on a and rank 2 on b"));
}

TEST_F(RendezvousLinks, WorkersThatSuspendWithoutAnOrderNameTheLostConnection) {
    NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
    report.broken_links = {{1, 2, "closed the connection"}};
    job.tell("a", report);
    EXPECT_THAT(describe(job.heard<Stop>("b").reason),
                HasSubstr("between rank 1 on a and rank 2 on b"));
}

TEST_F(RendezvousLinks, SuspendingWithoutAnOrderIsExplainedByAnEarlierBreak) {
    lose_peer("a", 1, 2);
    job.tell("c", Job::elastic_report(job.core.round(), NodeState::stopping, 10));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("b").reason,
              "the connection between rank 1 on a and rank 2 on b broke: rank 2 closed the "
              "connection");
}

TEST_F(RendezvousLinks, RoundsAbandonedWithoutAKnownReasonAreFollowedByABackOff) {
    const Instant began = job.now;
    for (int round = 0; round < 12; ++round) {
        job.tell("c", Job::elastic_report(job.core.round(), NodeState::stopping, 10));
        EXPECT_EQ(job.heard<Stop>("a").reason, "node c gave the round up");
        job.suspend({"a", "b", "c"}, 10);
        while (job.core.phase() == Phase::forming || job.core.phase() == Phase::forming) {
            job.pass(milliseconds(10));
        }
        ASSERT_EQ(job.core.phase(), Phase::training);
        EXPECT_EQ(job.assignment("a").restart_count, 0U);
        job.run_elastic({"a", "b", "c"}, 10);
    }
    EXPECT_GT(job.now - began, seconds(30)) << "each back-off is twice as long";
}

// Without a daemon workers suspend by themselves after a second; the first node that is back
// reports it.
TEST_F(RendezvousLinks, FailureReportedAfterARoundWasAbandonedExplainsIt) {
    job.tell("c", Job::elastic_report(job.core.round(), NodeState::stopped, 10));
    ASSERT_EQ(job.heard<Stop>("b").reason, "node c gave the round up");
    crash("b");
    job.suspend({"a"}, 10);
    ASSERT_EQ(job.core.phase(), Phase::training);
    EXPECT_EQ(job.assignment("a").reason, "rank 0 on b was ended by SIGKILL");
    EXPECT_EQ(job.assignment("a").restart_count, 1U);
}

TEST_F(RendezvousLinks, ErrorReportedAfterARoundWasAbandonedExplainsItIfNoPeerWasLost) {
    for (const bool lost : {false, true}) {
        job.tell("c", Job::elastic_report(job.core.round(), NodeState::stopped, 10));
        ASSERT_EQ(job.heard<Stop>("b").reason, "node c gave the round up");
        end("b", 2);
        NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
        if (lost) {
            report.broken_links = {{1, 4, "closed the connection"}};
        }
        job.tell("a", report);
        expect_charge(lost ? "node c gave the round up" : "rank 2 on b exited with code 1", 1);
        job.run_elastic({"a", "b", "c"}, 11);
    }
}

// Workers end with an error when they lose the store, and may be reported before the node that
// served it.
TEST_F(RendezvousLinks, ErrorDoesNotExplainThatANodeCouldNotServeTheStore) {
    for (const bool told_first : {false, true}) {
        if (told_first) {
            end("b", 2);
        }
        give_up_for_store("c");
        if (!told_first) {
            ASSERT_EQ(job.heard<Stop>("b").reason, kNoStore);
            end("b", 2);
        }
        end("a");
        expect_charge(kNoStore, 0);
        job.run_elastic({"a", "b", "c"}, 11);
        job.clear();
    }
}

TEST_F(RendezvousLinks, CrashCountsEvenIfANodeCouldNotServeTheStore) {
    crash("b");
    give_up_for_store("c");
    end("a");
    expect_charge("rank 0 on b was ended by SIGKILL", 1);
}

TEST_F(RendezvousLinks, FailureReportedAfterARoundWasAbandonedEndsTheJobIfNoneIsAllowed) {
    JobPolicy policy = policy_of(1, 3);
    policy.restarts_max = 0;
    begin(policy, {"a", "b", "c"});
    job.tell("c", Job::elastic_report(job.core.round(), NodeState::stopped, 10));
    crash("b");
    job.suspend({"a"}, 10);
    EXPECT_EQ(job.heard<Closed>("a").verdict.exit_code, 128 + SIGKILL);
    EXPECT_EQ(job.heard<Closed>("a").verdict.author, "node b");
}

// The round would never reach the boundary.
TEST_F(RendezvousLinks, BreakBeforeAStepBoundaryEndsTheRoundAtOnce) {
    leave("c");
    ASSERT_EQ(job.core.phase(), Phase::changing);
    lose_peer("a", 1, 2);
    EXPECT_EQ(job.core.phase(), Phase::changing);
    lose_peer("b", 2, 1);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_EQ(job.heard<Stop>("a").reason,
              "the connection between rank 1 on a and rank 2 on b broke");
}

TEST_F(RendezvousLinks, BreakBeforeAStepBoundaryReportedByOneEndEndsTheRoundSoon) {
    leave("c");
    lose_peer("a", 1, 2);
    job.pass(job.core.policy().regroup_window);
    EXPECT_EQ(job.core.phase(), Phase::ending);
}

TEST_F(RendezvousLinks, NodeThatSuspendsForABreakHasNotReachedTheBoundary) {
    leave("c");
    NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 10);
    report.broken_links = {{1, 2, "closed the connection"}};
    job.tell("a", report);
    EXPECT_EQ(job.core.phase(), Phase::ending);
    EXPECT_THAT(describe(job.heard<Stop>("b").reason),
                HasSubstr("between rank 1 on a and rank 2 on b"));
    EXPECT_NE(job.told<Stop>("c"), nullptr) << "it saves what it has";
}

// Saving nodes do not depend on the others once another node has suspended.
TEST_F(RendezvousLinks, ErrorOfASavingNodeDoesNotExplainABreakBetweenOthers) {
    leave("c");
    job.suspend({"a"}, 11);
    lose_peer("b", 3, 4);
    job.pass(job.core.policy().regroup_window);
    ASSERT_EQ(job.core.phase(), Phase::ending);
    NodeReport report = Job::elastic_report(job.core.round(), NodeState::stopped, 11);
    report.draining = "stopped by SIGTERM";
    report.failure = error_on("c");
    report.failure->rank = 4;
    job.tell("c", report);
    end("b");
    ASSERT_NE(job.told<Assign>("a"), nullptr);
    EXPECT_EQ(job.assignment("a").restart_count, 0U);
}

TEST_F(RendezvousLinks, ConnectionThatStaysBrokenCausesBackOffAndEndsNoJob) {
    const Instant began = job.now;
    for (int round = 0; round < 12; ++round) {
        lose_peer("a", 1, 2);
        lose_peer("b", 2, 1);
        job.suspend({"a", "b", "c"}, 10);
        while (job.core.phase() == Phase::forming || job.core.phase() == Phase::forming) {
            job.pass(milliseconds(10));
        }
        ASSERT_EQ(job.core.phase(), Phase::training);
        job.run_elastic({"a", "b", "c"}, 10);
    }
    EXPECT_GT(job.now - began, seconds(30)) << "each back-off is twice as long";
}

// ---- Many broken links.

/// The bytes that the core allocates for a heartbeat of node n0, as a measure of its work.
struct Costs {
    std::size_t training = 0;
    std::size_t ending = 0;

    friend bool operator==(const Costs&, const Costs&) = default;
};

/// Each of 63 nodes has reported `reports` times, with 16 broken links each time.
Costs costs_with(std::uint32_t reports) {
    JobPolicy policy = fixed_policy(64);
    policy.regroup_window = std::chrono::hours(24);
    Job job(policy);
    std::vector<std::string> nodes;
    for (std::uint32_t i = 0; i < policy.nodes_max; ++i) {
        nodes.push_back("n" + std::to_string(i));
        job.join(nodes.back());
    }
    job.run_elastic(nodes, 10);
    for (std::uint32_t report = 0; report < reports; ++report) {
        for (std::uint32_t i = 1; i < policy.nodes_max; ++i) {
            NodeReport words = job.report_of(nodes[i]);
            words.broken_links.clear();
            for (std::uint32_t link = 0; link < 16; ++link) {
                words.broken_links.push_back({i, 1000 + 16 * report + link, "closed it"});
            }
            job.tell(nodes[i], words);
        }
    }
    const auto heartbeat = [&] {
        const std::size_t before = fuzz::memory().allocated;
        job.beat("n0");
        (void)job.core.next_deadline();
        return fuzz::memory().allocated - before;
    };
    Costs costs;
    EXPECT_EQ(job.core.phase(), Phase::training);
    costs.training = heartbeat();
    job.tell("n1", Job::elastic_report(job.core.round(), NodeState::stopping, 10));
    EXPECT_EQ(job.core.phase(), Phase::ending);
    job.clear();
    costs.ending = heartbeat();
    EXPECT_NE(job.told<Stop>("n0"), nullptr);
    return costs;
}

TEST(RendezvousManyLinks, HeartbeatCostsNothingForTheEvidenceOfOthers) {
    EXPECT_EQ(costs_with(3), costs_with(1));
}

}  // namespace
}  // namespace regroup::rendezvous
