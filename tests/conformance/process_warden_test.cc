// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rendezvous/base/signal_name.h"
#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

/// A warden with the helper's small agent below it. The child that we see is the warden.
class Job {
   public:
    Job(LinuxLauncher& launcher, const std::vector<std::string>& arguments) {
        auto [out_read, out_write] = make_pipe();
        auto [err_read, err_write] = make_pipe();
        std::vector<std::string> all = {"agent"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        ProcessSpec spec = helper_spec(all);
        spec.stdout_fd = out_write.get();
        spec.stderr_fd = err_write.get();
        auto child = launcher.launch(spec);
        ENSURE(child);
        warden_.emplace(*std::move(child));
        out_ = std::move(out_read);
        err_ = std::move(err_read);
    }

    [[nodiscard]] ChildProcess& warden() { return *warden_; }

    /// Of the agent, from its first line.
    pid_t agent_pid() {
        std::istringstream line(hear("\n"));
        std::string word;
        pid_t pid = 0;
        line >> word >> pid;
        EXPECT_EQ(word, "pid");
        return pid;
    }

    /// Returns the next output of the agent, up to and including `text`.
    std::string hear(const std::string& text) {
        if (heard_.find(text) == std::string::npos) {
            heard_ += read_until(out_.get(), text);
        }
        const std::size_t end = std::min(heard_.find(text), heard_.size() - text.size());
        const std::string said = heard_.substr(0, end + text.size());
        heard_.erase(0, said.size());
        return said;
    }
    std::string all_output() { return std::exchange(heard_, "") + read_all(out_.get()); }
    std::string all_errors() { return read_all(err_.get()); }

    /// How the warden ends, which is what the user's shell sees.
    std::optional<ExitStatus> ending() {
        wait_until([&] { return warden_->status().has_value(); });
        return warden_->status();
    }

   private:
    std::optional<ChildProcess> warden_;
    UniqueFd out_;
    UniqueFd err_;
    std::string heard_;  ///< Read, but not yet asked for.
};

class WardenTest : public ::testing::Test {
   protected:
    void start(const std::vector<std::string>& arguments) { job_.emplace(launcher_, arguments); }

    /// Starts an agent whose hostile tree is complete.
    void start_with_tree() {
        start({"tree", folder_.path()});
        agent_ = job_->agent_pid();
        job_->hear("ready\n");
        for (const std::string& name : kTreeNames) {
            members_.push_back(folder_.pid(name));
            ASSERT_FALSE(is_gone(members_.back())) << name;
        }
    }

    void expect_tree_gone() {
        EXPECT_TRUE(wait_until([&] { return is_gone(agent_); }));
        for (const pid_t member : members_) {
            EXPECT_TRUE(wait_until([&] { return is_gone(member); })) << member;
        }
    }

    TemporaryFolder folder_;
    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
    std::optional<Job> job_;
    pid_t agent_ = 0;
    std::vector<pid_t> members_;
};

TEST_F(WardenTest, ExitCodeOfTheAgentIsPassedOn) {
    for (const int code : {0, 1, 3, 125, 255}) {
        start({"exit", std::to_string(code)});
        EXPECT_EQ(job_->ending(), ExitStatus::exited(code));
        EXPECT_EQ(job_->all_errors(), "");
    }
}

TEST_F(WardenTest, SignalThatEndsTheAgentEndsTheWarden) {
    for (const int number : {SIGTERM, SIGINT, SIGQUIT, SIGSEGV}) {
        start({"end_by", std::to_string(number)});
        const std::optional<ExitStatus> ending = job_->ending();
        ASSERT_TRUE(ending) << signal_name(number);
        // Whether there is a core: no limit holds for one that the kernel pipes to a program.
        EXPECT_EQ(ending, ExitStatus::signalled(number, ending->core_dumped))
            << signal_name(number);
        EXPECT_EQ(job_->all_errors(), "") << "the agent had said goodbye";
    }
}

TEST_F(WardenTest, KillingTheAgentLeavesNothingBehind) {
    start_with_tree();
    ::kill(agent_, SIGKILL);
    EXPECT_EQ(job_->ending(), ExitStatus::signalled(SIGKILL, false));
    // When the warden has ended, nothing is left: no need to wait for it.
    for (const pid_t member : members_) {
        EXPECT_TRUE(is_gone(member));
    }
    EXPECT_EQ(job_->all_errors(), "regroup: the agent (pid " + std::to_string(agent_) +
                                      ") was ended by SIGKILL; its workers were killed\n");
}

TEST_F(WardenTest, ProcessesThatAnAgentLeavesBehindAreKilled) {
    start({"leave_tree", folder_.path(), "7"});
    EXPECT_EQ(job_->ending(), ExitStatus::exited(7));
    for (const std::string& name : kTreeNames) {
        EXPECT_TRUE(is_gone(folder_.pid(name))) << name;
    }
    EXPECT_THAT(job_->all_errors(), HasSubstr("exited with code 7 and left "));
}

TEST_F(WardenTest, KillingTheWardenEndsAgentAndWorkers) {
    start_with_tree();
    ::kill(job_->warden().pid(), SIGKILL);
    EXPECT_EQ(job_->ending(), ExitStatus::signalled(SIGKILL, false));
    expect_tree_gone();
    EXPECT_THAT(job_->all_errors(), HasSubstr("the launcher was killed"));
}

TEST_F(WardenTest, EverySignalReachesTheAgentThroughTheWarden) {
    start({"listen"});
    job_->hear("ready\n");
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
        ::kill(job_->warden().pid(), number);
        EXPECT_EQ(job_->hear("\n"), "signal " + std::to_string(number) + "\n");
    }
}

TEST_F(WardenTest, SignalToTheGroupOrToEachProcessCountsOnce) {
    start({"listen"});
    const pid_t agent = job_->agent_pid();
    job_->hear("ready\n");
    // As a terminal does it: to the group of the warden, in which the agent is not.
    ::kill(-job_->warden().pid(), SIGINT);
    EXPECT_EQ(job_->hear("\n"), "signal 2\n");
    // As systemd does it: to every process.
    ::kill(agent, SIGHUP);
    EXPECT_EQ(job_->hear("\n"), "signal 1\n");
    ::kill(job_->warden().pid(), SIGHUP);
    ::kill(job_->warden().pid(), SIGUSR1);  // Is delivered after it.
    EXPECT_EQ(job_->hear("\n"), "signal 10\n");
    // As a user does who sends the signal again.
    ::kill(job_->warden().pid(), SIGHUP);
    EXPECT_EQ(job_->hear("\n"), "signal 1\n");
    ::kill(job_->warden().pid(), SIGUSR2);
    EXPECT_EQ(job_->all_output(), "signal 12\n");
    EXPECT_EQ(job_->ending(), ExitStatus::exited(0));
}

TEST_F(WardenTest, CtrlCOnATerminalReachesTheAgentOnceAndItMayWriteThere) {
    UniqueFd screen(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(screen);
    ASSERT_EQ(::grantpt(screen.get()), 0);
    ASSERT_EQ(::unlockpt(screen.get()), 0);
    start({"terminal", ::ptsname(screen.get())});
    job_->hear("ready\n");
    ASSERT_EQ(::write(screen.get(), "\3", 1), 1);
    EXPECT_THAT(read_until(screen.get(), "seen 2\r\n"), HasSubstr("seen 2\r\n"));
    ::kill(job_->warden().pid(), SIGUSR2);
    EXPECT_EQ(job_->all_output(), "signal 2\nsignal 12\n");
    EXPECT_EQ(job_->ending(), ExitStatus::exited(0));
}

TEST_F(WardenTest, BackgroundJobOfTheExecutingShellIsSpared) {
    start({"beside_job", folder_.path()});
    const pid_t agent = job_->agent_pid();
    job_->hear("ready\n");
    const pid_t background = folder_.pid("job");
    ::kill(agent, SIGKILL);
    EXPECT_EQ(job_->ending(), ExitStatus::signalled(SIGKILL, false));
    EXPECT_FALSE(is_gone(background));
    ::kill(background, SIGKILL);
}

TEST_F(WardenTest, InheritedIgnoredSignalStaysIgnored) {
    ::signal(SIGHUP, SIG_IGN);  // As under nohup.
    start({"listen"});
    ::signal(SIGHUP, SIG_DFL);
    const pid_t agent = job_->agent_pid();
    job_->hear("ready\n");
    ::kill(agent, SIGHUP);
    ::kill(job_->warden().pid(), SIGHUP);
    ::kill(job_->warden().pid(), SIGUSR2);
    EXPECT_EQ(job_->all_output(), "signal 12\n");
}

TEST_F(WardenTest, BackgroundJobHeedsSignalsOfProcessesAndNotOfTheKeyboard) {
    UniqueFd screen(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(screen);
    ASSERT_EQ(::grantpt(screen.get()), 0);
    ASSERT_EQ(::unlockpt(screen.get()), 0);
    start({"background", ::ptsname(screen.get())});
    job_->hear("ready\n");
    ASSERT_EQ(::write(screen.get(), "\3", 1), 1);
    ASSERT_EQ(::write(screen.get(), "\034", 1), 1);
    EXPECT_THAT(read_until(screen.get(), "^\\"), HasSubstr("^\\"));
    // SIGUSR1 is delivered after the signals of the keyboard, which would hide others of their
    // number.
    for (const int number : {SIGUSR1, SIGQUIT, SIGINT}) {
        ::kill(job_->warden().pid(), number);
        EXPECT_EQ(job_->hear("\n"), "signal " + std::to_string(number) + "\n");
    }
    ::kill(job_->warden().pid(), SIGUSR2);
    EXPECT_EQ(job_->all_output(), "signal 12\n");
}

TEST_F(WardenTest, AgentHasItsOwnGroupAndOneMoreDescriptor) {
    start({"report"});
    const pid_t agent = job_->agent_pid();
    const std::string report = job_->all_output();
    EXPECT_EQ(field(report, "pid"), std::to_string(agent));
    EXPECT_EQ(field(report, "group"), std::to_string(agent));
    EXPECT_EQ(field(report, "session"), std::to_string(job_->warden().pid()));
    EXPECT_EQ(field(report, "parent"), std::to_string(job_->warden().pid()));
    EXPECT_EQ(field(report, "fds"), "0,1,2,4,") << "4 is the bond";
    EXPECT_EQ(field(report, "blocked"), "");
    EXPECT_EQ(field(report, "ignored"), std::to_string(SIGTTOU) + ",");
}

TEST_F(WardenTest, WardenClosesDescriptorsThatOthersWaitFor) {
    start({"listen"});
    job_->hear("ready\n");
    const std::string folder = "/proc/" + std::to_string(job_->warden().pid()) + "/fd/";
    // By the descriptor's number. The agent may be ready before its warden has closed them.
    std::map<std::string, std::string> held;
    wait_until([&] {
        held.clear();
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
            held[entry.path().filename()] = std::filesystem::read_symlink(entry.path(), error);
        }
        return held.size() == 4 && held["0"] == "/dev/null" && held["1"] == "/dev/null";
    });
    EXPECT_EQ(held["0"], "/dev/null");
    EXPECT_EQ(held["1"], "/dev/null");
    EXPECT_THAT(held["3"], HasSubstr("socket"));
    EXPECT_EQ(held.size(), 4U) << ::testing::PrintToString(held);
}

}  // namespace
}  // namespace regroup::agent
