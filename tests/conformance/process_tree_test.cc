// SPDX-License-Identifier: Apache-2.0
#include "agent/process/process_tree.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

using ::testing::UnorderedElementsAreArray;

/// A process of the same session that is no descendant: its parent has ended.
class Neighbour {
   public:
    Neighbour() {
        auto [read_end, write_end] = make_pipe();
        const pid_t middle = ::fork();
        if (middle == 0) {
            const pid_t neighbour = ::fork();
            if (neighbour == 0) {
                ::alarm(300);
                for (;;) {
                    ::pause();
                }
            }
            ENSURE(::write(write_end.get(), &neighbour, sizeof neighbour) == sizeof neighbour);
            ::_exit(0);
        }
        ENSURE(::read(read_end.get(), &pid_, sizeof pid_) == sizeof pid_);
        ::waitid(P_PID, static_cast<id_t>(middle), nullptr, WEXITED);
        pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    }
    ~Neighbour() { ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0); }

    [[nodiscard]] bool is_alive() const {
        pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
        return ::poll(&entry, 1, 0) == 0;
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

   private:
    pid_t pid_ = 0;
    UniqueFd pidfd_;
};

class TreeTest : public ::testing::Test {
   protected:
    static void SetUpTestSuite() {
        (void)neighbour();
        become_subreaper();
    }

    static const Neighbour& neighbour() {
        static const Neighbour neighbour;  // Made while this process adopts no orphans yet.
        return neighbour;
    }

    Instant deadline() { return clock_.now() + kTestLimit; }

    static bool has_children() {
        siginfo_t info{};
        return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
    }

    SteadyClock clock_;
    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
};

TEST_F(TreeTest, BothWaysToFindDescendantsAgree) {
    const TemporaryFolder folder;
    auto worker = launcher_.launch(helper_spec({"tree", folder.path()}));
    ASSERT_TRUE(worker) << worker.error().detail;
    std::vector<pid_t> members;
    for (const std::string& name : kTreeNames) {
        members.push_back(folder.pid(name));
    }
    // The one between the worker and the daemon ends on its way.
    const auto settled = [&] { return descendants(::getpid()).size() == members.size(); };
    ASSERT_TRUE(wait_until([&] {
        reap_orphans(launcher_.children());
        return settled() || descendants(::getpid()).size() == members.size() + 1;
    }));
    const auto by_list = descendants(::getpid());
    const auto by_parent = descendants_by_parent(::getpid());
    EXPECT_THAT(by_parent, UnorderedElementsAreArray(by_list));
    for (const pid_t member : members) {
        EXPECT_NE(std::find(by_list.begin(), by_list.end(), member), by_list.end());
    }
    EXPECT_EQ(std::find(by_list.begin(), by_list.end(), neighbour().pid()), by_list.end());
    kill_descendants(clock_, deadline(), launcher_.children());
}

TEST_F(TreeTest, HostileTreeIsEndedAndANeighbourIsNot) {
    const TemporaryFolder folder;
    auto worker = launcher_.launch(helper_spec({"tree", folder.path()}));
    ASSERT_TRUE(worker) << worker.error().detail;
    std::vector<pid_t> members;
    for (const std::string& name : kTreeNames) {
        members.push_back(folder.pid(name));
        EXPECT_FALSE(is_gone(members.back())) << name;
    }
    EXPECT_EQ(read_process(folder.pid("daemon"))->command, "a (strange) na");

    const TreeKill result = kill_descendants(clock_, deadline(), launcher_.children());
    EXPECT_THAT(result.survivors, IsEmpty());
    EXPECT_GE(result.killed.size(), members.size());
    for (const pid_t member : members) {
        EXPECT_TRUE(is_gone(member));
    }
    EXPECT_THAT(descendants(::getpid()), ElementsAre(worker->pid())) << "kept for its owner";
    EXPECT_EQ(worker->status(), ExitStatus::signalled(SIGKILL, false));
    EXPECT_TRUE(neighbour().is_alive());
}

TEST_F(TreeTest, ProcessThatHopsFromPidToPidIsCaught) {
    for (int repetition = 0; repetition < 5; ++repetition) {
        const TemporaryFolder folder;
        auto worker = launcher_.launch(helper_spec({"tree", folder.path(), "hop"}));
        ASSERT_TRUE(worker) << worker.error().detail;
        EXPECT_NE(folder.pid("worker"), 0);
        const TreeKill result = kill_descendants(clock_, deadline(), {worker->pid()});
        EXPECT_THAT(result.survivors, IsEmpty());
        EXPECT_THAT(descendants_by_parent(::getpid()), ElementsAre(worker->pid()));
    }
    EXPECT_FALSE(has_children());
}

TEST_F(TreeTest, EmptyTreeNeedsNoKill) {
    const TreeKill result = kill_descendants(clock_, deadline(), {});
    EXPECT_TRUE(result.killed.empty());
    EXPECT_THAT(result.survivors, IsEmpty());
}

TEST_F(TreeTest, SurvivorsAtTheDeadlineAreNamed) {
    // A deadline in the past allows one look. SIGKILL mostly takes longer. The test requires that
    // no process is both alive and unnamed.
    auto worker = launcher_.launch(make_spec("/bin/sleep", {"1000"}));
    ASSERT_TRUE(worker) << worker.error().detail;
    const TreeKill result = kill_descendants(clock_, clock_.now(), launcher_.children());
    EXPECT_EQ(result.killed.size(), 1U);
    if (!result.survivors.empty()) {
        EXPECT_EQ(result.survivors.front().pid, worker->pid());
        EXPECT_THAT(describe(result.survivors),
                    ::testing::StartsWith("pid " + std::to_string(worker->pid()) + " (sleep"));
    }
}

}  // namespace
}  // namespace regroup::agent
