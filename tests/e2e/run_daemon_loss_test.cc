// SPDX-License-Identifier: Apache-2.0
//
// A job whose daemon is killed: the workers train on, and a restarted daemon knows the job.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Marks = std::map<std::uint32_t, Mark>;
using Node = std::unique_ptr<Program>;

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

class RunDaemonLoss : public EndToEnd {
   protected:
    [[nodiscard]] std::string state() const { return folder() + "/state"; }
    [[nodiscard]] std::unique_ptr<Rendezvous> serve(std::uint16_t port) const {
        return std::make_unique<Rendezvous>(
            Words{"--listen=127.0.0.1:" + std::to_string(port), "--state=" + state()});
    }
    [[nodiscard]] Node start_node(unsigned number, const std::string& endpoint,
                                  const Words& flags = {}) const {
        return start_run(node(number, "2:2", endpoint) +
                         Words{"--nproc-per-node=2", "--shutdown-timeout=30", "--max-restarts=2"} +
                         flags + Words{elastic_probe_program(), "beat"});
    }
    /// How many steps begin within `window`.
    [[nodiscard]] std::uint64_t steps_within(std::chrono::milliseconds window) const {
        const std::uint64_t before = step();
        std::this_thread::sleep_for(window);
        return step() - before;
    }
    static void expect_same_processes(const Marks& before, const Marks& after,
                                      std::uint32_t fresh) {
        ASSERT_THAT(after, SizeIs(before.size()));
        for (const auto& [rank, mark] : before) {
            EXPECT_EQ(pid_of(mark) == pid_of(after.at(rank)), rank != fresh) << "rank " << rank;
        }
    }
    /// Processes of workers that are in both rounds.
    static std::vector<pid_t> pids_in_both(const Marks& before, const Marks& after) {
        std::vector<pid_t> both;
        for (const auto& [rank, mark] : before) {
            for (const auto& [other_rank, other] : after) {
                if (pid_of(mark) == pid_of(other)) {
                    both.push_back(pid_of(mark));
                }
            }
        }
        return both;
    }
    [[nodiscard]] std::string replayed() const {
        Program replay({{regroup_program(), "replay", state()}, {}, folder()});
        EXPECT_EQ(replay.wait(), 0) << replay.output();
        return replay.output();
    }
};

TEST_F(RunDaemonLoss, JobTrainsOnAndTheNextDaemonKnowsItsRoundsAndItsBudget) {
    const std::uint16_t port = unused_port();
    auto daemon = serve(port);
    const std::string endpoint = daemon->endpoint();
    Node a = start_node(1, endpoint);
    Node b = start_node(2, endpoint);
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    ::kill(pid_of(first.at(3)), SIGKILL);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_NO_FATAL_FAILURE(expect_same_processes(first, second, 3));

    daemon->program().signal(SIGKILL);
    daemon->program().wait();
    ASSERT_TRUE(a->prints("the workers go on meanwhile")) << a->output();
    ASSERT_TRUE(b->prints("the workers go on meanwhile")) << b->output();
    EXPECT_TRUE(goes_on()) << a->output();
    daemon = serve(port);
    ASSERT_TRUE(daemon->program().prints("taken up again from the journal, round 2"))
        << daemon->program().output();
    ASSERT_TRUE(a->prints("the daemon is back at 127.0.0.1:")) << a->output();
    ASSERT_TRUE(b->prints("the daemon is back at 127.0.0.1:")) << b->output();
    EXPECT_TRUE(goes_on()) << a->output();
    EXPECT_THAT(marks("up"), SizeIs(2)) << "a round was lost with the daemon";

    ::kill(pid_of(second.at(1)), SIGKILL);
    const Marks third = await_marks("up", 4, 3);
    ASSERT_NO_FATAL_FAILURE(expect_same_processes(second, third, 1));
    // Both restarts are used up, and the first of them was before the daemon's death.
    ::kill(pid_of(third.at(2)), SIGKILL);
    EXPECT_EQ(a->wait(), 128 + SIGKILL) << a->output();
    EXPECT_EQ(b->wait(), 128 + SIGKILL) << b->output();
    EXPECT_EQ(count(a->output(), "the workers go on meanwhile"), 1) << a->output();
    EXPECT_THAT(replayed(), ContainsRegex("identical: [0-9]+ of [0-9]+ assignments"));
}

TEST_F(RunDaemonLoss, NoWorkerPausesHoweverLongTheDaemonIsAway) {
    constexpr std::chrono::milliseconds kWindow(1500);
    const std::uint16_t port = unused_port();
    auto daemon = serve(port);
    Node a = start_node(1, daemon->endpoint());
    Node b = start_node(2, daemon->endpoint());
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    ASSERT_TRUE(goes_on()) << a->output();

    // A step mostly sleeps, so that both windows are alike on a slow machine. Half leaves room for
    // other load. A worker that paused for the daemon would do no step: the daemon comes back only
    // after the window.
    const std::uint64_t with_it = steps_within(kWindow);
    daemon->program().signal(SIGKILL);
    const std::uint64_t without_it = steps_within(kWindow);
    EXPECT_TRUE(a->prints("the workers go on meanwhile")) << a->output();
    EXPECT_TRUE(b->prints("the workers go on meanwhile")) << b->output();
    EXPECT_GT(with_it, 10U);
    EXPECT_GE(without_it, with_it / 2) << a->output();

    daemon->program().wait();
    daemon = serve(port);
    ASSERT_TRUE(daemon->program().prints("job job: taken up again from the journal, round 1"))
        << daemon->program().output();
    ASSERT_TRUE(a->prints("the daemon is back at 127.0.0.1:")) << a->output();
    ASSERT_TRUE(b->prints("the daemon is back at 127.0.0.1:")) << b->output();
    release("finish");
    EXPECT_EQ(a->wait(), 0) << a->output();
    EXPECT_EQ(b->wait(), 0) << b->output();
    expect_same_processes(first, last_marks("done"), 4);
    EXPECT_THAT(marks("up"), SizeIs(1)) << "a round was lost with the daemon";
    EXPECT_THAT(a->output() + b->output(), Not(HasSubstr("recovered in")));
}

TEST_F(RunDaemonLoss, AgentsEndIfTheDaemonNeverComesBack) {
    Rendezvous daemon;
    const Words flags{"--join-timeout=5"};
    Node a = start_node(1, daemon.endpoint(), flags);
    Node b = start_node(2, daemon.endpoint(), flags);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << a->output() << b->output();
    daemon.program().signal(SIGKILL);
    daemon.program().wait();
    ASSERT_TRUE(a->prints("the workers go on meanwhile")) << a->output();
    ASSERT_TRUE(b->prints("the workers go on meanwhile")) << b->output();
    EXPECT_TRUE(goes_on());
    release("finish");
    for (Program* agent : {a.get(), b.get()}) {
        EXPECT_EQ(agent->wait(), 3) << agent->output();
        EXPECT_THAT(lines_of(agent->output()).back(),
                    saying("the workers of this node have succeeded", daemon.endpoint()));
        EXPECT_THAT(agent->family(), IsEmpty());
    }
    EXPECT_THAT(last_marks("done"), SizeIs(4));
}

TEST_F(RunDaemonLoss, DaemonMayComeBackAtTheOtherEndpoint) {
    const std::uint16_t port = unused_port();
    const std::uint16_t other = unused_port();
    auto daemon = serve(port);
    const std::string endpoints = daemon->endpoint() + ",127.0.0.1:" + std::to_string(other);
    Node a = start_node(1, endpoints);
    Node b = start_node(2, endpoints);
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    daemon->program().signal(SIGKILL);
    daemon->program().wait();
    daemon = serve(other);
    ASSERT_TRUE(a->prints("the daemon is back at 127.0.0.1:")) << a->output();
    ASSERT_TRUE(b->prints("the daemon is back at 127.0.0.1:")) << b->output();
    ::kill(pid_of(first.at(0)), SIGKILL);
    expect_same_processes(first, await_marks("up", 4, 2), 0);
    release("finish");
    EXPECT_EQ(a->wait(), 0) << a->output();
    EXPECT_EQ(b->wait(), 0) << b->output();
    EXPECT_THAT(replayed(), ContainsRegex("identical: [0-9]+ of [0-9]+ assignments"));
}

TEST_F(RunDaemonLoss, NodeThatHostsTheRendezvousMayBeKilledAndStartedAgain) {
    const std::string endpoint = "127.0.0.2:" + std::to_string(unused_port());
    const Words flags{"--state=" + state()};
    Node host = start_node(1, endpoint, flags);
    // Otherwise the other node might run the daemon.
    ASSERT_TRUE(host->prints("waiting: ")) << host->output();
    Node other = start_node(2, endpoint, flags);
    const Marks first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << host->output() << other->output();
    for (const pid_t pid : host->family()) {
        ::kill(pid, SIGKILL);
    }
    host->wait();
    ASSERT_TRUE(other->prints("the workers go on meanwhile")) << other->output();
    Node again = start_node(1, endpoint, flags);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << again->output() << other->output();
    EXPECT_THAT(pids_in_both(first, second), SizeIs(2)) << "those of the other node";
    EXPECT_THAT(again->output(), HasSubstr("taken up again from the journal, round 1"));
    // The loss is known at once, not only after the time that nodes have to come back.
    EXPECT_THAT(again->output(),
                HasSubstr("is lost: its launcher, which ran the daemon, was ended"));
    EXPECT_THAT(again->output(), ::testing::Not(HasSubstr("as a standby")));
    release("finish");
    EXPECT_EQ(again->wait(), 0) << again->output();
    EXPECT_EQ(other->wait(), 0) << other->output();
    EXPECT_THAT(replayed(), ContainsRegex("identical: [0-9]+ of [0-9]+ assignments"));
}

/// Two launchers of one host, of which the first runs the daemon until it is killed with its
/// workers, and does not come back.
class RunDaemonLossWithItsHost : public RunDaemonLoss {
   protected:
    /// Starts both and kills the first. Requires that `start` starts a node by its number. Returns
    /// the marks of the first round.
    template <class Start>
    Marks lose_host(const Start& start) {
        Node host = start(1);
        EXPECT_TRUE(host->prints("waiting: ")) << host->output();
        survivor_ = start(2);
        const Marks first = await_marks("up", 4);
        EXPECT_THAT(first, SizeIs(4)) << host->output() << survivor_->output();
        for (const pid_t pid : host->family()) {
            ::kill(pid, SIGKILL);
        }
        host->wait();
        return first;
    }
    /// A node whose workers do not notice that others are lost.
    [[nodiscard]] Node start_unaware(unsigned number, const Words& flags = {}) const {
        return start_run(node(number, "1:2", endpoint_) +
                         Words{"--nproc-per-node=2", "--last-call=60"} + flags +
                         Words{probe_program(), "mark=up", "await=finish"});
    }

    const std::string endpoint_ = "127.0.0.1:" + std::to_string(unused_port());
    Node survivor_;
};

constexpr const char* kServesNow = "this process starts one";

// Its workers may wait for the lost ones forever, and without a daemon nobody ends them.
TEST_F(RunDaemonLossWithItsHost, SurvivorServesTheRendezvousAndBeginsANewRound) {
    const Marks first = lose_host([&](unsigned number) { return start_unaware(number); });
    ASSERT_TRUE(survivor_->prints("the workers go on meanwhile")) << survivor_->output();
    ASSERT_TRUE(survivor_->prints(kServesNow)) << survivor_->output();
    Node replacement = start_unaware(1);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << survivor_->output() << replacement->output();
    EXPECT_THAT(pids_in_both(first, second), IsEmpty());
    release("finish");
    EXPECT_EQ(survivor_->wait(), 0) << survivor_->output();
    EXPECT_EQ(replacement->wait(), 0) << replacement->output();
}

TEST_F(RunDaemonLossWithItsHost, NodeThatHasFinishedDoesNotBeginAgain) {
    // Longer than a node waits before it runs the daemon.
    lose_host([&](unsigned number) { return start_unaware(number, {"--join-timeout=8"}); });
    release("finish");
    EXPECT_THAT(ended(*survivor_), exits(3, Not(HasSubstr(kServesNow))));
    EXPECT_THAT(marks("up"), SizeIs(1));
}

TEST_F(RunDaemonLossWithItsHost, ElasticSurvivorServesTheRendezvousAndKeepsItsProcesses) {
    const Marks first = lose_host([&](unsigned number) { return start_node(number, endpoint_); });
    ASSERT_TRUE(survivor_->prints(kServesNow)) << survivor_->output();
    Node replacement = start_node(1, endpoint_);
    const Marks second = await_marks("up", 4, 2);
    ASSERT_THAT(second, SizeIs(4)) << survivor_->output() << replacement->output();
    EXPECT_THAT(pids_in_both(first, second), SizeIs(2)) << "those of the survivor";
    release("finish");
    EXPECT_EQ(survivor_->wait(), 0) << survivor_->output();
    EXPECT_EQ(replacement->wait(), 0) << replacement->output();
}

TEST_F(RunDaemonLossWithItsHost, SurvivorTakesTheJobUpFromTheJournalAndKnowsTheLoss) {
    const Words flags{"--state=" + state()};
    lose_host([&](unsigned number) { return start_unaware(number, flags); });
    ASSERT_TRUE(survivor_->prints(kServesNow)) << survivor_->output();
    const Marks second = await_marks("up", 2, 2);
    ASSERT_THAT(second, SizeIs(2)) << survivor_->output();
    EXPECT_THAT(survivor_->output(),
                HasSubstr("is lost: its launcher, which ran the daemon, was ended"));
    release("finish");
    EXPECT_EQ(survivor_->wait(), 0) << survivor_->output();
    EXPECT_THAT(replayed(), ContainsRegex("identical: [0-9]+ of [0-9]+ assignments"));
}

TEST_F(RunDaemonLoss, LauncherWarnsThatAJobWithoutANameCannotBeTakenUpAgain) {
    Program job = run_probe({"--standalone", "--state=" + state()}, {"exit=0"});
    EXPECT_THAT(ended(job), exits(0, "this job has no name (--rdzv-id)"));
}

// A wrong flag must not discard the saved job.
TEST_F(RunDaemonLoss, SavedJobIsNotTakenUpWithContradictingFlags) {
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    const Words flags{"--nnodes=1",  "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
                      "--rdzv-id=x", "--state=" + state(),  "--local-addr=127.0.0.1"};
    Program first = run_probe(flags + Words{"--max-restarts=3"}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << first.output();
    for (const pid_t pid : first.family()) {
        ::kill(pid, SIGKILL);
    }
    first.wait();
    Program again = run_probe(flags + Words{"--max-restarts=7"}, {"hold"});
    EXPECT_THAT(ended(again), exits(2, "--max-restarts is 7 here, 3 there", "--rdzv-id"));
}

TEST_F(RunDaemonLoss, FailedJobIsStartedAnewByTheSameCommand) {
    const Words flags{"--standalone", "--rdzv-id=x", "--state=" + state()};
    Program failed = run_probe(flags, {"exit=3"});
    EXPECT_EQ(failed.wait(), 3) << failed.output();
    Program again = run_probe(flags, {"exit=0"});
    EXPECT_THAT(ended(again), exits(0, Not(HasSubstr("taken up again")),
                                    "rank 0 of 1 on node"));  // The numbers of rounds go on.
}

TEST_F(RunDaemonLoss, UnusableStatePathIsRefused) {
    Program job = run_probe({"--standalone", "--state=/proc/no"}, {"hold"});
    EXPECT_EQ(job.wait(), 2) << job.output();
    EXPECT_THAT(lines_of(job.output()), SizeIs(1));
    EXPECT_THAT(job.output(), AllOf(HasSubstr("--state"), HasSubstr("/proc/no")));
}

}  // namespace
}  // namespace regroup::testing
