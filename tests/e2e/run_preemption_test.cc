// SPDX-License-Identifier: Apache-2.0
//
// Preemption by a scheduler: workers get time to save their state, and are killed when it is over.
#include <csignal>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

#if defined(__SANITIZE_THREAD__)
#define REGROUP_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REGROUP_THREAD_SANITIZED 1
#endif
#endif

namespace regroup::testing {
namespace {

class RunPreemption : public EndToEnd {
   protected:
    [[nodiscard]] Words command(const Words& flags = {}) const {
        return Words{regroup_program(), "run", "--standalone", "--nproc-per-node=2"} + flags +
               Words{elastic_probe_program(), "save"};
    }
    [[nodiscard]] ProgramSpec in_folder(const Words& words) const {
        return {words, {"PROBE_DIR=" + folder()}, folder()};
    }
};

TEST_F(RunPreemption, WorkersFinishTheCheckpointTheyAreWriting) {
    Program job(in_folder(command()));
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ASSERT_THAT(await_marks("saving", 2), SizeIs(2)) << job.output();
    EXPECT_TRUE(job.running()) << job.output();
    release("disk");
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2));
    EXPECT_THAT(job.output(),
                AllOf(HasSubstr("SIGTERM: the workers save at the next step boundary and leave; "
                                "send the signal again to kill them now"),
                      HasSubstr("drained: stopped by SIGTERM")));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunPreemption, SecondSignalKillsWorkersThatAreStillSaving) {
    Program job(in_folder(command({"--shutdown-timeout=3600"})));
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ASSERT_THAT(await_marks("saving", 2), SizeIs(2)) << job.output();
    // A signal that follows at once counts as the same one, sent to a whole process group.
    EXPECT_TRUE(eventually([&] {
        job.signal(SIGTERM);
        return !job.running();
    })) << job.output();
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(last_marks("left"), IsEmpty());
    EXPECT_THAT(job.family(), IsEmpty());
}

// At the end of a grace time or at the time limit, Slurm sends the signal once more, and then waits
// for KillWait.
TEST_F(RunPreemption, RepeatedSignalOfSlurmLetsTheWorkersSave) {
    Program job({command(), {"PROBE_DIR=" + folder(), "SLURM_JOB_ID=7"}, folder()});
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ASSERT_THAT(await_marks("saving", 2), SizeIs(2)) << job.output();
    // A signal that comes sooner counts as the same one anyway.
    EXPECT_FALSE(job.wait(std::chrono::milliseconds(1100))) << job.output();
    job.signal(SIGTERM);
    EXPECT_FALSE(job.wait(std::chrono::milliseconds(100))) << job.output();
    release("disk");
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2)) << job.output();
}

TEST_F(RunPreemption, KeyboardInAJobOfSlurmKillsWorkersThatAreStillSaving) {
    Program job({command({"--shutdown-timeout=3600"}),
                 {"PROBE_DIR=" + folder(), "SLURM_JOB_ID=7"},
                 folder()});
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ASSERT_THAT(await_marks("saving", 2), SizeIs(2)) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("send SIGINT to kill them now"));
    EXPECT_TRUE(eventually([&] {
        job.signal(SIGINT);
        return !job.running();
    })) << job.output();
    EXPECT_EQ(job.wait(), 128 + SIGINT) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunPreemption, SaveLongerThanTheShutdownTimeoutIsCutShort) {
    Program job(in_folder(command({"--shutdown-timeout=1"})));
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    EXPECT_THAT(ended(job), exits(128 + SIGTERM, "--shutdown-timeout"));
    EXPECT_THAT(last_marks("left"), IsEmpty());
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunPreemption, WarningSignalThatNoWorkerHandlesDrainsTheNode) {
    release("disk");
    Program job(in_folder(command()));
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGUSR1);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2)) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("drained: stopped by SIGUSR1"));
}

TEST_F(RunPreemption, WarningSignalIsPassedOnToWorkersThatHandleIt) {
    Program job(in_folder({regroup_program(), "run", "--standalone", "--nproc-per-node=2",
                           elastic_probe_program(), "listen"}));
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job.output();
    job.signal(SIGUSR1);
    EXPECT_THAT(await_marks("heard", 1), SizeIs(1)) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(marks("up"), SizeIs(1)) << job.output();
}

TEST_F(RunPreemption, TimeoutCommandMaySignalTheWholeProcessGroup) {
    release("disk");
    Program job(in_folder(Words{"/usr/bin/timeout", "--preserve-status", "300"} + command()));
    ASSERT_THAT(await_marks("stepped", 2), SizeIs(2)) << job.output();
    job.signal(SIGTERM);  // timeout forwards SIGTERM as it does when its time is over.
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2)) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

// ---- A scheduler that signals all processes of the node, not the launcher alone.

TEST_F(RunPreemption, WorkersSignalledBeforeTheLauncherSaveAndLeave) {
    release("disk");
    Program job(in_folder(command()));
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(0)), SIGTERM);
    ::kill(pid_of(up.at(1)), SIGTERM);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2)) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("drained: stopped by SIGTERM"));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunPreemption, WorkersSignalledAfterTheLauncherSaveAndLeave) {
    Program job(in_folder(command()));
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    job.signal(SIGTERM);
    ::kill(pid_of(up.at(0)), SIGTERM);
    ASSERT_THAT(await_marks("saving", 2), SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(1)), SIGTERM);
    release("disk");
    EXPECT_EQ(job.wait(), 75) << job.output();
    EXPECT_THAT(last_marks("left"), SizeIs(2)) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunPreemption, SigtermToOneWorkerAloneEndsThatWorker) {
    Program job(in_folder(command()));
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(1)), SIGTERM);
    EXPECT_THAT(ended(job), exits(128 + SIGTERM, "was ended by SIGTERM"));
    EXPECT_THAT(last_marks("left"), IsEmpty());
}

TEST_F(RunPreemption, SdkKeepsTheProgramsOwnSigtermHandler) {
    Program job(in_folder(Words{regroup_program(), "run", "--standalone", "--nproc-per-node=2",
                                elastic_probe_program(), "handle"}));
    const auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(pid_of(up.at(0)), SIGTERM);
    ::kill(pid_of(up.at(1)), SIGTERM);
    ASSERT_THAT(await_marks("handled", 2), SizeIs(2)) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(last_marks("done"), SizeIs(2));
}

TEST_F(RunPreemption, ForkedChildOfAWorkerEndsBySigtermAtOnce) {
#ifdef REGROUP_THREAD_SANITIZED
    GTEST_SKIP() << "a child of several threads runs no signal handler under this sanitizer";
#endif
    Program job(in_folder(Words{regroup_program(), "run", "--standalone", "--nproc-per-node=2",
                                elastic_probe_program(), "fork"}));
    auto up = await_marks("up", 2);
    ASSERT_THAT(up, SizeIs(2)) << job.output();
    ::kill(std::stoi(up.at(0)["child"]), SIGTERM);
    ::kill(std::stoi(up.at(1)["child"]), SIGTERM);
    ASSERT_THAT(await_marks("widowed", 2), SizeIs(2)) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(last_marks("done"), SizeIs(2));
}

}  // namespace
}  // namespace regroup::testing
