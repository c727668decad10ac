// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/process/proc_files.h"
#include "agent/process/process_tree.h"
#include "agent/process/resolve_program.h"
#include "agent/watch/kernel_view.h"
#include "agent/watch/stack_saver.h"
#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

constexpr const char* kSystemPath = "/usr/local/bin:/usr/bin:/bin";

/// True if this user may attach to processes that are not descendants of the tool.
bool may_attach() {
    int scope = 0;  // Where the file is not, nothing forbids it.
    std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
    constexpr int kNobody = 3;
    return scope == 0 || (scope < kNobody && ::geteuid() == 0);
}
constexpr const char* kMayNotAttach = "kernel.yama.ptrace_scope forbids debuggers to attach";

class StacksTest : public ::testing::Test {
   protected:
    void TearDown() override {
        children_.clear();
        const SteadyClock clock;
        kill_descendants(clock, clock.now() + kTestLimit, {});
    }

    // A process that hangs. It leads its group, and ends with this test.
    pid_t start_hanging() {
        auto [read_end, write_end] = make_pipe();
        ProcessSpec spec = helper_spec({"stubborn"});
        spec.stdout_fd = write_end.get();
        auto child = launcher_.launch(spec);
        write_end.reset();
        if (!child) {
            ADD_FAILURE() << child.error().detail;
            return 0;
        }
        read_until(read_end.get(), "ready");
        children_.push_back(std::move(*child));
        const pid_t pid = children_.back().pid();
        EXPECT_TRUE(wait_until([&] { return sleeps(pid); }));
        return pid;
    }

    // A folder with one tool in it, under the name by which it is sought.
    std::string path_with(const std::string& name, const std::string& script) {
        const auto folder = folder_.path() / ("bin-" + name);
        std::filesystem::create_directories(folder);
        std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
        std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
        return folder.string();
    }
    std::optional<std::string> path_with_real(const std::string& name) {
        const Result<std::string> found = resolve_program(name, kSystemPath);
        if (!found) {
            return std::nullopt;
        }
        const auto folder = folder_.path() / ("real-" + name);
        std::filesystem::create_directories(folder);
        std::filesystem::create_symlink(*found, folder / name);
        return folder.string();
    }

    SavedStacks save(StackOptions options, const std::vector<HangSubject>& subjects) {
        StackSaver saver(io_, clock_, launcher_, std::move(options));
        std::optional<SavedStacks> saved;
        saver.save(out(), subjects, "job j, round 3: rank 1 hangs",
                   [&](const SavedStacks& result) { saved = result; });
        EXPECT_TRUE(run_until(io_, [&] { return saved.has_value(); }));
        return saved.value_or(SavedStacks());
    }
    [[nodiscard]] std::filesystem::path out() const { return folder_.path() / "run" / "hang"; }
    [[nodiscard]] std::filesystem::path file_path(std::uint32_t rank) const {
        return out() / ("rank" + std::to_string(rank) + ".txt");
    }
    std::string file(std::uint32_t rank) { return read_file(file_path(rank)); }

    // A tool that stops its process as debuggers do, and never lets go of it.
    std::string attaching_tool() {
        return path_with("eu-stack", "for pid do :; done; exec " PROCESS_HELPER " attach $pid");
    }
    static bool sleeps(pid_t pid) {
        const auto entry = read_process(pid);
        return entry && entry->state == 'S';
    }

    // Threads and functions, by a real tool.
    void check_real(const std::string& name) {
        const std::optional<std::string> path = path_with_real(name);
        if (!path) {
            GTEST_SKIP() << name << " is not installed";
        }
        if (!may_attach()) {
            GTEST_SKIP() << kMayNotAttach;
        }
        const pid_t first = start_hanging();
        const pid_t second = start_hanging();
        const SavedStacks saved =
            save({*path, kTestLimit, 16}, {{0, first, ""}, {1, second, "in step 7"}});
        EXPECT_EQ(saved.how, "by " + name);
        EXPECT_EQ(saved.files, 2U);
        EXPECT_EQ(saved.complaint, "");
        for (const std::uint32_t rank : {0U, 1U}) {
            EXPECT_THAT(file(rank), saying("pause", "main"));
        }
        EXPECT_FALSE(is_stopped(first));
        EXPECT_FALSE(is_stopped(second));
    }

    boost::asio::io_context io_;
    SteadyClock clock_;
    LinuxLauncher launcher_{io_};
    std::vector<ChildProcess> children_;
    TemporaryFolder folder_;
};

TEST_F(StacksTest, EuStackShowsTheFunctionsOfEachProcess) {
    check_real("eu-stack");
}

TEST_F(StacksTest, GdbShowsTheFunctionsWithoutEuStack) {
    check_real("gdb");
}

TEST_F(StacksTest, PythonShowsItsOwnFunctionsBesideTheNativeOnes) {
    const Result<std::string> python = resolve_program("python3", kSystemPath);
    if (!python) {
        GTEST_SKIP() << "python3 is not installed";
    }
    ProcessSpec spec;
    spec.executable = *python;
    spec.arguments = {"python3", "-c", "import time; time.sleep(1000)"};
    auto child = launcher_.launch(spec);
    ASSERT_TRUE(child) << child.error().detail;
    children_.push_back(std::move(*child));
    const pid_t interpreter = children_.back().pid();
    ASSERT_TRUE(wait_until([&] { return read_process(interpreter)->command == "python3"; }));
    const std::string both = path_with("eu-stack", "echo native of $4") + ":" +
                             path_with("py-spy", "echo functions of $3");
    const SavedStacks saved =
        save({both, kTestLimit, 16}, {{0, interpreter, ""}, {1, start_hanging(), ""}});
    EXPECT_EQ(saved.how, "by eu-stack and py-spy");
    EXPECT_EQ(saved.complaint, "");
    const std::string pid = std::to_string(interpreter);
    EXPECT_THAT(file(0), ::testing::HasSubstr("By eu-stack:\nnative of " + pid +
                                              "\n\nBy py-spy:\nfunctions of " + pid + "\n"));
    EXPECT_THAT(file(1), ::testing::Not(::testing::HasSubstr("py-spy")));
}

TEST_F(StacksTest, KernelViewIsSavedWithoutATool) {
    const pid_t pid = start_hanging();
    const SavedStacks saved = save({(folder_.path() / "empty").string()}, {{5, pid, "in step 7"}});
    EXPECT_EQ(saved.how, "as the kernel sees them (neither eu-stack nor gdb is installed)");
    EXPECT_EQ(saved.files, 1U);
    EXPECT_EQ(saved.complaint, "");
    const std::string number = std::to_string(pid);
    EXPECT_THAT(file(5), StartsWith("job j, round 3: rank 1 hangs\nrank 5, pid " + number +
                                    ", in step 7\n"));
    EXPECT_THAT(file(5), HasSubstr("thread " + number + " (process_helper), state S (sleeping)"));
    EXPECT_THAT(file(5), HasSubstr("libc.so")) << "where its program counter is";
}

TEST_F(StacksTest, ToolThatDoesNotEndIsKilledAndItsProcessRunsOn) {
    const pid_t pid = start_hanging();
    // Stops its process, as a debugger does, and is never done.
    const std::string path =
        path_with("eu-stack", "for pid do :; done; kill -STOP $pid; echo attached; exec sleep 100");
    const SavedStacks saved =
        save({path + ":" + kSystemPath, std::chrono::milliseconds(300), 16}, {{0, pid, ""}});
    EXPECT_EQ(saved.complaint, "eu-stack took longer than 300 ms on pid " + std::to_string(pid));
    EXPECT_THAT(file(0), HasSubstr("As the kernel sees it:\nthread "));
    EXPECT_TRUE(wait_until([&] { return !is_stopped(pid); }));
    EXPECT_FALSE(is_gone(pid));
}

TEST_F(StacksTest, ProcessRunsOnWhenItsDebuggerIsKilled) {
    if (!may_attach()) {
        GTEST_SKIP() << kMayNotAttach;
    }
    const pid_t pid = start_hanging();
    const SavedStacks saved =
        save({attaching_tool(), std::chrono::milliseconds(300), 16}, {{0, pid, ""}});
    EXPECT_EQ(saved.complaint, "eu-stack took longer than 300 ms on pid " + std::to_string(pid));
    EXPECT_TRUE(wait_until([&] { return sleeps(pid); }));
}

TEST_F(StacksTest, ProcessRunsOnWhenTheSaverIsDestroyed) {
    if (!may_attach()) {
        GTEST_SKIP() << kMayNotAttach;
    }
    const pid_t pid = start_hanging();
    {
        StackSaver saver(io_, clock_, launcher_, {attaching_tool(), kTestLimit, 16});
        saver.save(out(), {{0, pid, ""}}, "heading", [](const SavedStacks&) {});
        ASSERT_TRUE(wait_until([&] { return read_file(file_path(0)).ends_with("attached\n"); }));
        ASSERT_TRUE(is_stopped(pid));
    }
    EXPECT_TRUE(wait_until([&] { return sleeps(pid); }));
}

TEST_F(StacksTest, StoppedProcessStaysStopped) {
    const pid_t pid = start_hanging();
    ::kill(pid, SIGSTOP);
    ASSERT_TRUE(wait_until([&] { return is_stopped(pid); }));
    const SavedStacks saved = save({path_with("eu-stack", "echo a frame")}, {{0, pid, ""}});
    EXPECT_EQ(saved.complaint, "");
    EXPECT_THAT(file(0), saying("state T (stopped)", "By eu-stack:\na frame\n"));
    EXPECT_TRUE(is_stopped(pid));
}

TEST_F(StacksTest, FailedToolIsReportedAndTheKernelViewIsKept) {
    const pid_t pid = start_hanging();
    const SavedStacks saved =
        save({path_with("gdb", "echo ptrace: not permitted; exit 1")}, {{0, pid, ""}});
    EXPECT_EQ(saved.how, "by gdb");
    EXPECT_EQ(saved.complaint, "gdb exited with code 1 on pid " + std::to_string(pid));
    EXPECT_THAT(file(0), saying("As the kernel sees it:\nthread ",
                                "By gdb:\nptrace: not permitted\ngdb exited with code 1\n"));
}

TEST_F(StacksTest, MoreProcessesThanToolsAtOnceTakeTurns) {
    std::vector<HangSubject> subjects;
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
        subjects.push_back({rank, start_hanging(), ""});
    }
    const SavedStacks saved =
        save({path_with("eu-stack", "echo a frame"), kTestLimit, 2}, subjects);
    EXPECT_EQ(saved.files, 5U);
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
        EXPECT_THAT(file(rank), HasSubstr("By eu-stack:\na frame\n"));
    }
}

TEST_F(StacksTest, ChildrenOfAWrapperAreShown) {
    auto [read_end, write_end] = make_pipe();
    ProcessSpec spec = shell_spec("sleep 100 & echo $!; wait");
    spec.stdout_fd = write_end.get();
    auto child = launcher_.launch(spec);
    write_end.reset();
    ASSERT_TRUE(child);
    const std::string sleeper = read_until(read_end.get(), "\n");
    children_.push_back(std::move(*child));
    const SavedStacks saved = save({path_with("eu-stack", "echo a frame"), kTestLimit, 16},
                                   {{3, children_.back().pid(), ""}});
    EXPECT_EQ(saved.files, 2U);
    const std::string name = "rank3." + sleeper.substr(0, sleeper.find('\n')) + ".txt";
    EXPECT_THAT(read_file(out() / name),
                saying("a descendant of its process", "By eu-stack:\na frame\n"));
}

TEST_F(StacksTest, EndedProcessIsNoError) {
    const pid_t pid = start_hanging();
    children_.clear();
    const SteadyClock clock;
    kill_descendants(clock, clock.now() + kTestLimit, {});
    const SavedStacks saved = save({(folder_.path() / "empty").string()}, {{0, pid, ""}});
    EXPECT_EQ(saved.files, 1U);
    EXPECT_EQ(kernel_view(pid), "");
}

TEST_F(StacksTest, FolderThatCannotBeMadeIsReported) {
    std::ofstream(folder_.path() / "run") << "a file, where a folder should be";
    const SavedStacks saved = save({kSystemPath}, {{0, start_hanging(), ""}});
    EXPECT_EQ(saved.files, 0U);
    EXPECT_THAT(saved.complaint, StartsWith("cannot make the folder "));
}

TEST_F(StacksTest, StacksOfAnEarlierRunAreKept) {
    const auto folder = folder_.path() / "hang-round1";
    const std::vector<HangSubject> mine{{4, 1, ""}, {5, 1, ""}};
    EXPECT_EQ(unused_folder(folder, mine), folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "rank0.txt") << "another node of this run";
    EXPECT_EQ(unused_folder(folder, mine), folder);
    std::ofstream(folder / "rank5.txt") << "an earlier run";
    EXPECT_EQ(unused_folder(folder, mine), folder_.path() / "hang-round1-2");
    std::filesystem::create_directories(folder_.path() / "hang-round1-2");
    std::ofstream(folder_.path() / "hang-round1-2" / "rank4.txt") << "and one more";
    EXPECT_EQ(unused_folder(folder, mine), folder_.path() / "hang-round1-3");
}

TEST_F(StacksTest, SecondCallAndDestructionEndTheFirst) {
    const pid_t pid = start_hanging();
    bool called = false;
    {
        StackSaver saver(io_, clock_, launcher_,
                         {path_with("eu-stack", "exec /bin/sleep 100"), kTestLimit, 16});
        const auto never = [&](const SavedStacks&) { called = true; };
        saver.save(out(), {{0, pid, ""}}, "first", never);
        saver.save(out(), {{0, pid, ""}}, "second", never);
    }
    io_.restart();
    io_.poll();
    EXPECT_FALSE(called);
    EXPECT_THAT(file(0), StartsWith("second\n"));
}

}  // namespace
}  // namespace regroup::agent
