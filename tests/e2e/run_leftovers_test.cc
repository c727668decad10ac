// SPDX-License-Identifier: Apache-2.0
//
// However the launcher ends, all processes that it started end with it, and no others do.
#include <csignal>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using ::testing::Ge;

// The documented limit is two seconds. A busy machine may be slower.
constexpr std::chrono::seconds kGoneLimit(5);

class RunLeftovers : public EndToEnd {
   protected:
    // Waits for two workers whose process trees are hard to end.
    void await_trees(const Program& job) const {
        for (const char* name : {"up", "child", "session", "daemon"}) {
            ASSERT_THAT(await_marks(name, 2), SizeIs(2)) << name << "\n" << job.output();
        }
        // Warden, agent, and four processes for each worker.
        ASSERT_THAT(job.family(), SizeIs(Ge(10U)));
    }
    static void expect_nothing_left(const Program& job) {
        EXPECT_TRUE(eventually([&] { return job.family().empty(); }, kGoneLimit));
        EXPECT_THAT(job.family(), IsEmpty());
    }
};

const Words kTwo{"--nproc-per-node=2"};
const Words kHostile{"tree", "mark=up", "hold"};

TEST_F(RunLeftovers, KillingTheLauncherEndsItsWholeTreeAndNobodyElse) {
    // One in the session and process group of the launcher, one in its own.
    Program neighbour({{"/bin/sleep", "1000"}, {}, ""});
    Program other_job = run_probe({}, {"mark=neighbour", "hold"});
    ASSERT_THAT(await_marks("neighbour", 1), SizeIs(1)) << other_job.output();
    Program job = run_probe(kTwo, kHostile);
    await_trees(job);
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    expect_nothing_left(job);
    EXPECT_TRUE(neighbour.running());
    EXPECT_TRUE(other_job.running());
    EXPECT_TRUE(is_alive(pid_of(mark("neighbour", 1))));
}

TEST_F(RunLeftovers, KillingTheAgentProcessEndsItsWholeTree) {
    Program neighbour({{"/bin/sleep", "1000"}, {}, ""});
    Program job = run_probe(kTwo, kHostile);
    await_trees(job);
    const std::vector<pid_t> agents = children_of(job.pid());
    ASSERT_THAT(agents, SizeIs(1));
    ::kill(agents.front(), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.output();
    EXPECT_EQ(job.ended_by(), SIGKILL);
    expect_nothing_left(job);
    EXPECT_TRUE(neighbour.running());
}

/// The signals with which people and schedulers end a job.
class RunLeftoversOfSignal : public RunLeftovers, public ::testing::WithParamInterface<int> {};

TEST_P(RunLeftoversOfSignal, SignalEndsAllWorkersAndTheLauncherByThatSignal) {
    Program job = run_probe(kTwo + Words{"--max-restarts=3"}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job.output();
    job.signal(GetParam());
    EXPECT_EQ(job.wait(), 128 + GetParam()) << job.output();
    EXPECT_EQ(job.ended_by(), GetParam());
    EXPECT_THAT(job.family(), IsEmpty());
    EXPECT_THAT(job.output(), Not(HasSubstr("failed")));
    EXPECT_THAT(marks("up"), SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(Signals, RunLeftoversOfSignal,
                         ::testing::Values(SIGTERM, SIGINT, SIGHUP, SIGQUIT),
                         [](const auto& named) { return "Signal" + std::to_string(named.param); });

TEST_F(RunLeftovers, SecondSignalDoesNotWaitForTheShutdownTimeout) {
    Program job = run_probe(kTwo + Words{"--shutdown-timeout=1000"}, kHostile);
    await_trees(job);
    job.signal(SIGTERM);
    job.signal(SIGTERM);  // A signal that comes so soon counts as the same one.
    ASSERT_TRUE(job.prints("SIGTERM: stopping the workers")) << job.output();
    EXPECT_FALSE(job.wait(std::chrono::milliseconds(1100))) << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_EQ(job.ended_by(), SIGTERM);
    EXPECT_THAT(job.family(), IsEmpty());
    EXPECT_THAT(job.output(), HasSubstr("killing the workers of round 1 at once"));
}

TEST_F(RunLeftovers, WorkerThatIsStoppedIsWokenToEnd) {
    Program job = run_probe({"--shutdown-timeout=1000"}, {"mark=up", "raise=19", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunLeftovers, SignalEndsAnAgentThatIsStillWaiting) {
    const Rendezvous rendezvous;
    Program waiting = run_probe(node(1, "2", rendezvous.endpoint()), {"hold"});
    Program seeking = run_probe({"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1",
                                 "--master-port=" + std::to_string(unused_port())},
                                {"hold"});
    ASSERT_TRUE(waiting.prints("waiting: ")) << waiting.output();
    ASSERT_TRUE(seeking.prints("trying again for ")) << seeking.output();
    for (Program* agent : {&waiting, &seeking}) {
        agent->signal(SIGTERM);
        EXPECT_EQ(agent->wait(), 128 + SIGTERM) << agent->output();
        EXPECT_EQ(agent->ended_by(), SIGTERM);
    }
}

TEST_F(RunLeftovers, WorkerThatNeedsTimeToSaveGetsIt) {
    Program job = run_probe({"--shutdown-timeout=1000"}, {"save_on_term=disk"});
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    job.signal(SIGTERM);
    ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
    EXPECT_TRUE(job.running());
    release("disk");
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(marks("saved")[1], SizeIs(1));
}

TEST_F(RunLeftovers, ChildrenThatAFinishedWorkerLeftEndWithTheJob) {
    Program job = run_probe(kTwo, {"local=0?background", "local=1?background=session"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(marks("background")[1], SizeIs(2));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunLeftovers, ChildrenOfARoundAreGoneBeforeTheNext) {
    Program job = run_probe(
        {"--max-restarts=1"},
        {"restart=0?background=session", "restart=0?exit=3", "mark=second", "await=finish"});
    ASSERT_THAT(await_marks("second", 1, 2), SizeIs(1)) << job.output();
    const pid_t background = pid_of(mark("background", 1));
    ASSERT_GT(background, 0);
    EXPECT_FALSE(is_alive(background));
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

}  // namespace
}  // namespace regroup::testing
