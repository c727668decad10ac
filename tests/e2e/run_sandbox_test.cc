// SPDX-License-Identifier: Apache-2.0
//
// A container may refuse system calls. Each one that the launcher, its agent and daemon, and the
// SDK make beyond POSIX is refused alone. The promises hold: nothing survives, nodes are not taken
// for lost, and where a job cannot run, a line names the call.
#include <csignal>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

struct Refusal {
    std::string call;
    bool works = true;  ///< Jobs run without the call.
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
    return out << refusal.call;
}

class RunSandbox : public EndToEnd {
   protected:
    [[nodiscard]] Program start(const std::string& error, const std::string& call,
                                const Words& flags, const Words& program) const {
        return Program({Words{REFUSE_CALLS, error, call, regroup_program(), "run", "--standalone",
                              "--heartbeat-timeout=3"} +
                            flags + program,
                        {"PROBE_DIR=" + folder()},
                        folder()});
    }
    static void expect_no_crash(const Program& job) {
        EXPECT_THAT(job.output(), Not(AnyOf(HasSubstr("terminate called"), HasSubstr("invariant"),
                                            HasSubstr("fenced"), HasSubstr("cannot end "),
                                            HasSubstr("the agent (pid"))));
        EXPECT_THAT(job.family(), IsEmpty()) << job.output();
    }
};

class RunSandboxOf : public RunSandbox, public ::testing::WithParamInterface<Refusal> {};

// The ranks form a group, leave processes behind in a session of their own, fail once, and are
// restarted.
TEST_P(RunSandboxOf, JobsRunOrALineNamesTheCall) {
    for (const std::string error : {"EPERM", "ENOSYS"}) {
        SCOPED_TRACE(error);
        Program job = start(error, GetParam().call, {"--nproc-per-node=2", "--max-restarts=1"},
                            {probe_program(), "background=session", "store", "join", "barrier",
                             "restart=0,rank=1?exit=3", "restart=0?hold"});
        const auto code = job.wait();
        ASSERT_TRUE(code.has_value()) << job.output();
        if (GetParam().works || *code == 0) {
            EXPECT_EQ(*code, 0) << job.output();
        } else {
            EXPECT_THAT(job.output(), HasSubstr(GetParam().call));
        }
        expect_no_crash(job);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, RunSandboxOf,
    ::testing::Values(Refusal{"accept4", false}, Refusal{"clone3", false}, Refusal{"close_range"},
                      Refusal{"copy_file_range"}, Refusal{"dup3", false},
                      Refusal{"epoll_create1", false}, Refusal{"epoll_pwait"},
                      Refusal{"eventfd2", false}, Refusal{"faccessat2"}, Refusal{"fallocate"},
                      Refusal{"flock"}, Refusal{"futex_waitv"}, Refusal{"get_robust_list"},
                      Refusal{"getrandom"}, Refusal{"madvise"}, Refusal{"membarrier"},
                      Refusal{"memfd_create", false}, Refusal{"pidfd_open"},
                      Refusal{"pidfd_send_signal"}, Refusal{"pipe2", false},
                      Refusal{"ppoll", false}, Refusal{"prctl", false}, Refusal{"prlimit64"},
                      Refusal{"renameat2"}, Refusal{"rseq"}, Refusal{"sched_getaffinity"},
                      Refusal{"sched_setaffinity"}, Refusal{"set_mempolicy"},
                      Refusal{"set_robust_list"}, Refusal{"statx"}, Refusal{"timerfd_create"}),
    [](const auto& named) { return named.param.call; });

TEST_F(RunSandbox, LeftoversAreKilledWithoutPidfdsAndTheCauseIsSaidOnce) {
    Program job = start("EPERM", "pidfd_open", {"--nproc-per-node=2", "--shutdown-timeout=0.5"},
                        {probe_program(), "tree", "mark=up", "hold"});
    for (const char* name : {"up", "child", "session", "daemon"}) {
        ASSERT_THAT(await_marks(name, 2), SizeIs(2)) << name << "\n" << job.output();
    }
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    expect_no_crash(job);
    std::size_t said = 0;
    for (const std::string& line : lines_of(job.output())) {
        said += line.find("pidfd_open") != std::string::npos ? 1U : 0U;
    }
    EXPECT_EQ(said, 1U) << job.output();
}

TEST_F(RunSandbox, DeadLauncherLeavesNothingWithoutPidfds) {
    Program job = start("EPERM", "pidfd_open", {"--nproc-per-node=2"},
                        {probe_program(), "tree", "mark=up", "hold"});
    for (const char* name : {"up", "child", "session", "daemon"}) {
        ASSERT_THAT(await_marks(name, 2), SizeIs(2)) << name << "\n" << job.output();
    }
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
    EXPECT_TRUE(eventually([&] { return job.family().empty(); }, std::chrono::seconds(20)));
}

}  // namespace
}  // namespace regroup::testing
