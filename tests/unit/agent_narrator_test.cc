// SPDX-License-Identifier: Apache-2.0
//
// The lines about a node, and their times.
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/text/narrator.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using rendezvous::NodeState;
using rendezvous::PeerError;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kPeer = "head:29400";

/// Keeps the lines. Those about the job have their topic in front, if they have one.
class FakeConsole final : public Console {
   public:
    void say(std::string_view line) override { lines.emplace_back(line); }
    void say_of_job(const std::string& line, const std::string& here,
                    const std::string& topic) override {
        lines.push_back((topic.empty() ? "" : "[" + topic + "] ") + line + here);
    }
    [[nodiscard]] bool prints_job_lines() const noexcept override { return true; }
    void say_lines(const std::vector<std::string>& report) override {
        lines.insert(lines.end(), report.begin(), report.end());
    }
    bool show_progress(const std::string& line) override {
        shown = line;
        return has_cursor;
    }

    std::vector<std::string> lines;
    std::string shown;
    bool has_cursor = false;
};

AgentConfig config() {
    AgentConfig config;
    config.job = "test";
    config.offer.name = "a";
    config.offer.workers = 2;
    config.policy.heartbeat_timeout = seconds(3);
    config.join_timeout = seconds(600);
    return config;
}

class AgentNarrator : public ::testing::Test {
   protected:
    std::vector<std::string> said() { return std::exchange(console.lines, {}); }
    void hears(const rendezvous::FromDaemon& message) {
        narrator.received(now, node, message, kPeer);
    }
    void begins(std::uint64_t round) {
        report.round = assignment.round = RoundId{round};
        report.state = NodeState::running;
        narrator.round_begins(assignment);
    }
    static WorkerFailure failure(std::uint32_t rank) {
        WorkerFailure failure;
        failure.rank = failure.local_rank = rank;
        failure.node = "a";
        failure.signal = SIGKILL;
        failure.pid = 4711;
        return failure;
    }

    Instant now{seconds(1000)};
    FakeConsole console;
    rendezvous::NodeReport report;
    Assignment assignment = [] {
        Assignment assignment;
        assignment.world_size = 4;
        assignment.master_addr = "a";
        assignment.master_port = 1;
        assignment.reason = {"go"};
        return assignment;
    }();
    AgentView node{report, assignment};
    Narrator narrator{console, config(), true, now};
};

TEST_F(AgentNarrator, TellsWhyTheNodeWaitsAtGrowingIntervals) {
    const rendezvous::Waiting waiting{.joined = {"a", "b"}, .detail = {"1 node is missing"}};
    const std::string line =
        "[waiting] waiting: 1 node is missing (here: a, b; at head:29400; for up to ";
    std::vector<int> times;
    for (int ms = 0; ms < 10'000; ms += 100, now += milliseconds(100)) {
        hears(waiting);
        if (!said().empty()) {
            times.push_back(ms);
        }
    }
    EXPECT_THAT(times, ElementsAre(900, 2700, 6300));
    node.give_up_at = now + seconds(7);
    now += seconds(6);
    hears(waiting);
    EXPECT_THAT(said(), ElementsAre(line + "1.0 s)"));
}

TEST_F(AgentNarrator, StandbyIsToldAtOnceAndReportsItsFailure) {
    begins(1);
    narrator.failed(node, failure(1), false);
    narrator.waits(now);
    said();
    hears(rendezvous::Waiting{.joined = {}, .standby = true, .detail = {"the round is full"}});
    const std::vector<std::string> lines = said();
    ASSERT_GT(lines.size(), 2U);
    EXPECT_EQ(lines.front(), "regroup: failure report of round 1:");
    EXPECT_EQ(lines.back(), "waiting as a standby of job test: the round is full");
}

TEST_F(AgentNarrator, TellsOfTheConnection) {
    narrator.disconnected(node, kPeer, false);
    EXPECT_THAT(said(), IsEmpty());
    node.has_workers = true;
    narrator.disconnected(node, kPeer, true);
    EXPECT_THAT(said(), ElementsAre("lost the connection to the daemon at head:29400; "
                                    "reconnecting, the workers go on meanwhile"));
    hears(rendezvous::Alive{});
    EXPECT_THAT(said(), ElementsAre("the daemon is back at head:29400"));
    node.leaving = true;
    narrator.disconnected(node, kPeer, true);
    EXPECT_THAT(said(), IsEmpty());
    narrator.silent(kPeer);
    EXPECT_THAT(said(), ElementsAre("the daemon at head:29400 has been silent for 3.0 s; "
                                    "reconnecting"));
}

TEST_F(AgentNarrator, FailedAttemptsAreToldAfterAMomentAndAnswersOnce) {
    narrator.trouble(now, node, "refused", false);
    EXPECT_THAT(said(), IsEmpty());
    narrator.trouble(now, node, "no daemon answers there", true);
    narrator.trouble(now, node, "no daemon answers there", true);
    EXPECT_THAT(said(), ElementsAre("no daemon answers there; trying again for 600 s "
                                    "(--join-timeout)"));
    now += seconds(5);
    begins(1);
    said();
    report.elastic = true;
    narrator.trouble(now, node, "refused", false);
    EXPECT_THAT(said(), ElementsAre("refused; the workers go on; trying again for 600 s "
                                    "(--join-timeout), and each committed step begins this time "
                                    "anew"));
    report.state = NodeState::finished;
    now += seconds(5);
    narrator.trouble(now, node, "refused", false);
    EXPECT_THAT(said(), ElementsAre("refused; the workers here have succeeded; trying to report it "
                                    "for 600 s (--join-timeout)"));
}

TEST_F(AgentNarrator, RoundBeginsWithTheRanksOfTheNode) {
    begins(1);
    EXPECT_THAT(said(), ElementsAre("round 1: ranks 0-1 of 4 on node a (group rank 0 of 1), "
                                    "master a:1: go"));
    Narrator quiet(console, config(), false, now);
    quiet.round_begins(assignment);
    EXPECT_THAT(said(), IsEmpty());
}

TEST_F(AgentNarrator, OwnFailureIsReportedInFullAndAConsequenceInOneLine) {
    begins(1);
    said();
    narrator.failed(node, failure(1), false);
    narrator.failed(node, failure(0), false);
    EXPECT_THAT(said(), ElementsAre("rank 1 on a was ended by SIGKILL, pid 4711"));
    assignment.failed_rank = 1;
    begins(2);
    EXPECT_EQ(said().front(), "regroup: failure report of round 1:");

    WorkerFailure consequence = failure(1);
    consequence.peer_error = PeerError::lost;
    narrator.failed(node, consequence, false);
    said();
    assignment.failed_rank = 3;
    begins(3);
    EXPECT_EQ(said().front(), "rank 1 on a was ended by SIGKILL as a consequence of: go");
}

TEST_F(AgentNarrator, SuspendedWorkerThatEndsHasNoRank) {
    report.state = NodeState::stopped;
    narrator.failed(node, failure(1), true);
    EXPECT_THAT(said(), ElementsAre("a waiting worker has ended: local rank 1, pid 4711, ended by "
                                    "SIGKILL"));
    narrator.quits(std::nullopt);
    EXPECT_THAT(said(), IsEmpty());
}

TEST_F(AgentNarrator, LastFailureIsReportedUnlessTheVerdictHasOne) {
    begins(1);
    said();
    narrator.failed(node, failure(1), false);
    said();
    rendezvous::Verdict verdict;
    verdict.failure = failure(3);
    narrator.quits(verdict);
    EXPECT_THAT(said(), IsEmpty());
    narrator.quits(std::nullopt);
    EXPECT_EQ(said().front(), "regroup: failure report of round 1:");
}

TEST_F(AgentNarrator, PauseIsToldOnce) {
    begins(1);
    said();
    const PauseWorkers pause{RoundId{1}, true, seconds(1), AskedBySignal{SIGTERM}};
    narrator.pauses(node, pause);
    narrator.pauses(node, pause);
    EXPECT_THAT(said(), ElementsAre("leaving round 1 at the next step boundary: stopped by "
                                    "SIGTERM"));
}

TEST_F(AgentNarrator, KillIsToldIfItComesLate) {
    narrator.killed_late({.round = RoundId{1}, .signal = SIGTERM});
    narrator.killed_late({.round = RoundId{1}, .signal = SIGKILL, .waiting = true});
    EXPECT_THAT(said(), IsEmpty());
    narrator.killed_late({.round = RoundId{1}, .signal = SIGKILL});
    narrator.killed_late({.round = RoundId{1}, .signal = SIGKILL, .hurried = true});
    EXPECT_THAT(said(), ElementsAre("killing the workers of round 1 that have not ended in time",
                                    "killing the workers of round 1 at once"));
}

TEST_F(AgentNarrator, ProgressIsShownInPlaceOrNowAndThen) {
    node.parting = {.ending = 2, .kill_at = now + seconds(60)};
    narrator.progress(now, node, {});
    now += seconds(5);
    narrator.progress(now, node, {});
    EXPECT_THAT(said(), ElementsAre("waiting for 2 workers to end; SIGKILL in 60 s"));
    console.has_cursor = true;
    narrator.progress(now, node, {});
    EXPECT_THAT(said(), IsEmpty());
    EXPECT_EQ(console.shown, "waiting for 2 workers to end; SIGKILL in 55 s");
}

}  // namespace
}  // namespace regroup::agent
