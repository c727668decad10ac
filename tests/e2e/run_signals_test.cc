// SPDX-License-Identifier: Apache-2.0
//
// A signal that asks a job to stop reaches a rank before the processes on which it depends, and
// what is left of a rank after that.
#include <csignal>
#include <filesystem>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

/// The launcher under one of its names, and the signal that it gets.
struct Stop {
    std::string name;
    bool as_torchrun = false;
    int signal = 0;
    /// It ends the run. Otherwise it is passed on, and a rank that exits with 0 has succeeded.
    bool ends_run = true;
};

std::ostream& operator<<(std::ostream& out, const Stop& stop) {
    return out << stop.name;
}

class RunSignals : public EndToEnd {
   protected:
    [[nodiscard]] Program start(bool as_torchrun, const Words& flags, const Words& program) const {
        std::string launcher = regroup_program();
        Words words{"run", "--standalone"};
        if (as_torchrun) {
            launcher = folder() + "/torchrun";
            std::filesystem::create_symlink(regroup_program(), launcher);
            words = {"--standalone", "--no-python"};
        }
        return Program(
            {Words{launcher} + words + flags + program, {"PROBE_DIR=" + folder()}, folder()});
    }
    /// A shell that waits for the probe, and does not pass signals on.
    [[nodiscard]] static Words below_shell(const std::string& steps) {
        return {"/bin/sh", "-c", probe_program() + " " + steps + "; exit $?"};
    }
    /// It saves, and so its process gets as far as its end.
    void expect_saved(const Program& job) const {
        ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
        release("disk");
    }
};

class RunSignalsOf : public RunSignals, public ::testing::WithParamInterface<Stop> {};

TEST_P(RunSignalsOf, HelpersOfARankLiveUntilTheRankHasSaved) {
    Program job = start(GetParam().as_torchrun, {"--shutdown-timeout=1000"},
                        {probe_program(), "background", "save_on_term=disk"});
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    const pid_t helper = pid_of(mark("background", 1));
    job.signal(GetParam().signal);
    ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
    EXPECT_TRUE(is_alive(helper));
    release("disk");
    const auto code = job.wait();
    EXPECT_TRUE(code.has_value()) << job.output();
    EXPECT_EQ(code == 0, !GetParam().ends_run) << job.output();
    EXPECT_THAT(marks("saved")[1], SizeIs(1)) << job.output();
    EXPECT_FALSE(is_alive(helper));
}

TEST_P(RunSignalsOf, ProgramBelowAShellHasTheGraceTimeAfterTheShell) {
    Program job = start(GetParam().as_torchrun, {"--shutdown-timeout=1000"},
                        below_shell("background save_on_term=disk"));
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    const pid_t helper = pid_of(mark("background", 1));
    job.signal(GetParam().signal);
    ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
    EXPECT_TRUE(is_alive(helper));
    release("disk");
    EXPECT_NE(job.wait(), 0) << job.output();
    EXPECT_THAT(marks("saved")[1], SizeIs(1)) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
    EXPECT_THAT(job.output(), Not(HasSubstr("killing")));
}

INSTANTIATE_TEST_SUITE_P(Stops, RunSignalsOf,
                         ::testing::Values(Stop{"Sigterm", false, SIGTERM},
                                           Stop{"CtrlC", false, SIGINT},
                                           Stop{"Sigusr1", false, SIGUSR1, false},
                                           Stop{"TorchrunSigterm", true, SIGTERM},
                                           Stop{"TorchrunSigusr2", true, SIGUSR2, false}),
                         [](const auto& named) { return named.param.name; });

TEST_F(RunSignals, ProgramBelowAShellIsKilledAtTheShutdownTimeout) {
    Program job = start(false, {"--shutdown-timeout=0.5"}, below_shell("ignore=15 mark=up hold"));
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    const pid_t program = pid_of(mark("up", 1));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_FALSE(is_alive(program));
    EXPECT_THAT(job.output(), HasSubstr("killing the workers of round 1"));
}

TEST_F(RunSignals, SecondSignalKillsAProgramBelowAShellAtOnce) {
    Program job = start(false, {"--shutdown-timeout=1000"}, below_shell("ignore=15 mark=up hold"));
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    job.signal(SIGTERM);
    ASSERT_TRUE(job.prints("SIGTERM: stopping the workers")) << job.output();
    EXPECT_FALSE(job.wait(std::chrono::milliseconds(1100))) << job.output();
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(job.family(), IsEmpty());
}

// A scheduler may signal all processes of a job, so the shell may die before the agent hears of it.
TEST_F(RunSignals, ProgramBelowAShellHasTheGraceTimeIfSomebodyElseEndsTheShell) {
    Program job = start(false, {"--shutdown-timeout=1000"}, below_shell("save_on_term=disk"));
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    const std::vector<pid_t> agents = children_of(job.pid());
    ASSERT_THAT(agents, SizeIs(1));
    const std::vector<pid_t> shells = children_of(agents.front());
    ASSERT_THAT(shells, SizeIs(1));
    ::kill(shells.front(), SIGTERM);
    ASSERT_NO_FATAL_FAILURE(expect_saved(job));
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(marks("saved")[1], SizeIs(1)) << job.output();
}

TEST_F(RunSignals, ShellThatCatchesTheSignalDoesNotKeepItFromTheProgram) {
    Program job = start(
        false, {"--shutdown-timeout=1000"},
        {"/bin/sh", "-c", "trap 'echo caught' TERM; " + probe_program() + " save_on_term=disk"});
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    job.signal(SIGTERM);
    ASSERT_NO_FATAL_FAILURE(expect_saved(job));
    EXPECT_THAT(ended(job), exits(128 + SIGTERM, "caught"));
    EXPECT_THAT(marks("saved")[1], SizeIs(1)) << job.output();
}

TEST_F(RunSignals, PeersOfALostRankStopInOrderBelowTheirShellsToo) {
    Program job =
        start(false, {"--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1000"},
              below_shell("round=2?exit=0 rank=1?await=fail rank=1?exit=3 save_on_term=disk"));
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    release("fail");
    ASSERT_NO_FATAL_FAILURE(expect_saved(job));
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(marks("saved")[1], SizeIs(1)) << job.output();
}

}  // namespace
}  // namespace regroup::testing
