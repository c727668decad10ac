// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

#include "agent/process/orphan_reaper.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/signal_name.h"
#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

class LauncherTest : public ::testing::Test {
   protected:
    /// Children that were still running when they were let go.
    void TearDown() override {
        const SteadyClock clock;
        kill_descendants(clock, clock.now() + kTestLimit, {});
    }

    /// Launches, and runs the loop until the child has ended.
    std::optional<ExitStatus> run(const ProcessSpec& spec) {
        auto child = launcher_.launch(spec);
        if (!child) {
            ADD_FAILURE() << child.error().detail;
            return std::nullopt;
        }
        std::optional<ExitStatus> status;
        child->async_wait([&](ExitStatus ended) { status = ended; });
        run_until(io_, [&] { return status.has_value(); });
        return status;
    }

    /// Runs `spec` and returns the text that the child writes to stdout.
    std::string output_of(ProcessSpec spec) {
        auto [read_end, write_end] = make_pipe();
        spec.stdout_fd = write_end.get();
        auto child = launcher_.launch(spec);
        write_end.reset();
        if (!child) {
            return child.error().detail;
        }
        return read_all(read_end.get());
    }

    static bool has_children() {
        siginfo_t info{};
        return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
    }

    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
};

TEST_F(LauncherTest, EveryExitCodeArrives) {
    std::vector<ChildProcess> children;
    std::map<int, ExitStatus> ended;
    for (int code = 0; code < 256; ++code) {
        auto child = launcher_.launch(shell_spec("exit " + std::to_string(code)));
        ASSERT_TRUE(child) << child.error().detail;
        children.push_back(*std::move(child));
        children.back().async_wait([&ended, code](ExitStatus status) { ended[code] = status; });
    }
    ASSERT_TRUE(run_until(io_, [&] { return ended.size() == 256; }));
    for (const auto& [code, status] : ended) {
        EXPECT_EQ(status, ExitStatus::exited(code));
    }
    children.clear();
    EXPECT_FALSE(has_children());
}

TEST_F(LauncherTest, EverySignalThatEndsAProcessArrives) {
    for (const int number :
         {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1,
          SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU, SIGXFSZ, SIGSYS, SIGRTMIN}) {
        const auto status = run(shell_spec("ulimit -c 0; kill -" + std::to_string(number) + " $$"));
        ASSERT_TRUE(status) << signal_name(number);
        // Whether there is a core: no limit holds for one that the kernel pipes to a program.
        EXPECT_EQ(status, ExitStatus::signalled(number, status->core_dumped))
            << signal_name(number);
    }
}

TEST_F(LauncherTest, ExitCodeNineIsNotSigkill) {
    EXPECT_EQ(run(shell_spec("exit 9"))->describe(), "exited with code 9");
    EXPECT_EQ(run(shell_spec("kill -9 $$"))->describe(), "was ended by SIGKILL");
}

TEST_F(LauncherTest, FailedLaunchHasAReasonAndLeavesNothingBehind) {
    const TemporaryFolder folder;
    const auto file = [&](const std::string& name, const std::string& text, mode_t mode) {
        const std::string path = folder.path() / name;
        std::ofstream(path) << text;
        ::chmod(path.c_str(), mode);
        return path;
    };
    ProcessSpec wrong_folder = shell_spec("true");
    wrong_folder.working_directory = "/no/such/folder";
    ProcessSpec too_long = shell_spec("true");
    too_long.arguments.emplace_back(std::size_t{1} << 22, 'x');
    const std::vector<std::pair<ProcessSpec, std::string>> cases = {
        {make_spec("/no/such/program", {}),
         "cannot start '/no/such/program': execve: No such file or directory"},
        {make_spec(file("plain", "#!/bin/sh\n", 0644), {}), "execve: Permission denied"},
        {make_spec(file("text", "echo hello\n", 0755), {}), "nor a script that begins with #!"},
        {make_spec(file("script", "#!/no/such/shell\n", 0755), {}),
         "its first line names the interpreter '/no/such/shell', which does not exist"},
        {make_spec(folder.path(), {}), "execve: Permission denied"},
        {wrong_folder,
         "cannot start '/bin/sh': chdir to '/no/such/folder': No such file or directory"},
        {too_long, "arguments and environment are too long"},
    };
    const std::size_t fds_before = open_fd_count();
    for (int repetition = 0; repetition < 10; ++repetition) {
        for (const auto& [spec, reason] : cases) {
            EXPECT_THAT(launcher_.launch(spec), fails(Errc::system, reason));
        }
    }
    EXPECT_FALSE(has_children());
    EXPECT_TRUE(launcher_.children().empty());
    EXPECT_EQ(open_fd_count(), fds_before);
}

TEST_F(LauncherTest, ChildGetsOnlyTheContentsOfTheSpec) {
    const TemporaryFolder folder;
    std::vector<UniqueFd> strays;  // Not close-on-exec.
    for (int count = 0; count < 50; ++count) {
        strays.emplace_back(::dup(2));
    }
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGCHLD);
    sigset_t before;
    ::pthread_sigmask(SIG_BLOCK, &some, &before);
    ::signal(SIGHUP, SIG_IGN);   // As nohup leaves it: to be kept.
    ::signal(SIGINT, SIG_IGN);   // As a script leaves it: the agent passes SIGINT on.
    ::signal(SIGPIPE, SIG_IGN);  // As the agent sets it for itself: not to be passed on.
    ::signal(SIGTERM, [](int) {});

    ProcessSpec spec = helper_spec({"report", "an argument", ""});
    spec.environment = {"ONE=1", "EMPTY="};
    spec.working_directory = folder.path();
    const std::string report = output_of(spec);

    ::signal(SIGHUP, SIG_DFL);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

    EXPECT_EQ(field(report, "fds"), "0,1,2,");
    EXPECT_EQ(field(report, "group"), field(report, "pid"));
    EXPECT_EQ(field(report, "session"), field(report, "pid"));
    EXPECT_EQ(field(report, "parent"), std::to_string(::getpid()));
    EXPECT_EQ(field(report, "death_signal"), std::to_string(SIGKILL));
    EXPECT_EQ(field(report, "blocked"), "");
    EXPECT_EQ(field(report, "ignored"), std::to_string(SIGHUP) + ",");
    EXPECT_EQ(field(report, "folder"), std::filesystem::canonical(folder.path()));
    EXPECT_EQ(field(report, "arguments"), std::string(PROCESS_HELPER) + ",report,an argument,,");
    EXPECT_EQ(field(report, "environment"), "ONE=1,EMPTY=,");
}

TEST_F(LauncherTest, DescriptorsAreClosedWithoutCloseRange) {
    const std::string report = output_of(helper_spec({"without_close_range"}));
    EXPECT_EQ(field(report, "fds"), "0,1,2,");
}

TEST_F(LauncherTest, TwoHundredChildrenLeaveNothingBehind) {
    const std::size_t fds_before = open_fd_count();
    int ended = 0;
    {
        std::vector<ChildProcess> children;
        for (int count = 0; count < 200; ++count) {
            auto child = launcher_.launch(make_spec("/bin/true", {}));
            ASSERT_TRUE(child) << child.error().detail;
            children.push_back(*std::move(child));
            children.back().async_wait([&](ExitStatus status) {
                EXPECT_TRUE(status.success());
                ++ended;
            });
        }
        EXPECT_EQ(launcher_.children().size(), 200U);
        ASSERT_TRUE(run_until(io_, [&] { return ended == 200; }));
    }
    EXPECT_TRUE(launcher_.children().empty());
    EXPECT_FALSE(has_children());
    // Asio keeps an epoll set, a timer and an event descriptor from its first use on.
    EXPECT_LE(open_fd_count(), fds_before + 3);
}

TEST_F(LauncherTest, ThreadsThatAllocateDoNotDisturbALaunch) {
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int count = 0; count < 4; ++count) {
        threads.emplace_back([&] {
            while (!stop) {
                const std::vector<std::string> garbage(100, std::string(100, 'x'));
                ASSERT_EQ(garbage.size(), 100U);
            }
        });
    }
    for (int count = 0; count < 200; ++count) {
        if (count % 10 == 0) {
            EXPECT_FALSE(launcher_.launch(make_spec("/no/such/program", {})));
        } else {
            EXPECT_TRUE(run(make_spec("/bin/true", {}))->success());
        }
    }
    stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_FALSE(has_children());
}

TEST_F(LauncherTest, ProgramThatIsBeingWrittenMayStartLater) {
    const TemporaryFolder folder;
    const std::filesystem::path program = folder.path() / "program";
    std::filesystem::copy("/bin/true", program);
    std::ofstream writer(program, std::ios::app);
    EXPECT_THAT(launcher_.launch(make_spec(program, {})), fails(Errc::overloaded));
    writer.close();
    EXPECT_TRUE(run(make_spec(program, {}))->success());
    EXPECT_THAT(launcher_.launch(make_spec(folder.path() / "missing", {})), fails(Errc::system));
}

TEST_F(LauncherTest, ChildThatIgnoresSigtermEndsBySigkill) {
    auto [read_end, write_end] = make_pipe();
    ProcessSpec spec = helper_spec({"stubborn"});
    spec.stdout_fd = write_end.get();
    auto child = launcher_.launch(spec);
    ASSERT_TRUE(child) << child.error().detail;
    EXPECT_EQ(read_until(read_end.get(), "\n"), "ready\n");
    std::optional<ExitStatus> status;
    child->async_wait([&](ExitStatus ended) { status = ended; });

    child->signal_group(SIGTERM);
    child->signal_group(SIGCONT);
    io_.run_for(std::chrono::milliseconds(50));
    EXPECT_EQ(status, std::nullopt);
    child->signal_group(SIGKILL);
    ASSERT_TRUE(run_until(io_, [&] { return status.has_value(); }));
    EXPECT_EQ(status, ExitStatus::signalled(SIGKILL, false));
}

TEST_F(LauncherTest, TheLoopGoesOnWhileAReplacementRuns) {
    // A child that ends at once, then its replacement: the replacement's descriptor takes the
    // number and the event loop's bookkeeping of the first, stale readiness included.
    for (int repetition = 0; repetition < 30; ++repetition) {
        EXPECT_TRUE(run(make_spec("/bin/true", {}))->success());
        auto child = launcher_.launch(make_spec("/bin/sleep", {"1000"}));
        ASSERT_TRUE(child) << child.error().detail;
        bool ended = false;
        child->async_wait([&](ExitStatus) { ended = true; });
        bool fired = false;
        boost::asio::steady_timer timer(io_, std::chrono::milliseconds(1));
        timer.async_wait([&](const boost::system::error_code&) { fired = true; });
        ASSERT_TRUE(run_until(io_, [&] { return fired; }));
        EXPECT_FALSE(ended);
    }
}

TEST_F(LauncherTest, ExitBeforeTheWaitIsNotMissed) {
    auto child = launcher_.launch(shell_spec("exit 3"));
    ASSERT_TRUE(child) << child.error().detail;
    ASSERT_TRUE(wait_until([&] { return child->status().has_value(); }));
    std::optional<ExitStatus> status;
    child->async_wait([&](ExitStatus ended) { status = ended; });
    EXPECT_EQ(status, std::nullopt) << "a handler is called from the loop only";
    ASSERT_TRUE(run_until(io_, [&] { return status.has_value(); }));
    EXPECT_EQ(status, ExitStatus::exited(3));
}

TEST_F(LauncherTest, ExitHandlerMayDestroyTheChild) {
    auto launched = launcher_.launch(make_spec("/bin/true", {}));
    ASSERT_TRUE(launched) << launched.error().detail;
    std::optional<ChildProcess> child(*std::move(launched));
    child->async_wait([&](ExitStatus) { child.reset(); });
    ASSERT_TRUE(run_until(io_, [&] { return !child.has_value(); }));
    EXPECT_FALSE(has_children());
}

TEST_F(LauncherTest, DestroyingARunningChildEndsItsGroupAndDropsTheHandler) {
    auto [read_end, write_end] = make_pipe();
    ProcessSpec spec = shell_spec("sleep 1000 & echo started; wait");
    spec.stdout_fd = write_end.get();
    {
        auto child = launcher_.launch(spec);
        ASSERT_TRUE(child) << child.error().detail;
        child->async_wait([](ExitStatus) { ADD_FAILURE() << "called after its child was gone"; });
        read_until(read_end.get(), "started");
    }
    write_end.reset();
    EXPECT_EQ(read_all(read_end.get()), "") << "the end of file comes when the group is gone";
    io_.run_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(launcher_.children().empty());
    ASSERT_TRUE(wait_until([] {
        reap_orphans({});
        return !has_children();
    }));
}

TEST_F(LauncherTest, GroupCanBeSignalledAfterItsLeaderHasEnded) {
    auto [read_end, write_end] = make_pipe();
    ProcessSpec spec = shell_spec("sleep 1000 & exit 0");
    spec.stdout_fd = write_end.get();
    auto child = launcher_.launch(spec);
    write_end.reset();
    ASSERT_TRUE(child) << child.error().detail;
    ASSERT_TRUE(wait_until([&] { return child->status().has_value(); }));
    child->signal(SIGKILL);
    child->signal_group(SIGKILL);
    EXPECT_EQ(read_all(read_end.get()), "");
    EXPECT_EQ(child->status(), ExitStatus::exited(0));
}

TEST_F(LauncherTest, AdoptedOrphansAreReapedAndChildrenAreNot) {
    become_subreaper();
    const OrphanReaper reaper(io_, launcher_);
    auto launched = launcher_.launch(shell_spec("(sleep 0.05 & sleep 0.02 &) ; exit 4"));
    ASSERT_TRUE(launched) << launched.error().detail;
    std::optional<ChildProcess> child(*std::move(launched));
    const pid_t pid = child->pid();
    ASSERT_TRUE(run_until(io_, [&] {
        return child->status().has_value() && descendants(::getpid()) == std::vector{pid};
    }));
    EXPECT_EQ(child->status(), ExitStatus::exited(4));
    child.reset();
    EXPECT_FALSE(has_children());
}

}  // namespace
}  // namespace regroup::agent
