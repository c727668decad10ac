// SPDX-License-Identifier: Apache-2.0
//
// How far a wait has come: in place on a terminal, by lines elsewhere.
#include <csignal>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/pseudo_terminal.h"

namespace regroup::testing {
namespace {

class RunProgress : public EndToEnd {
   protected:
    [[nodiscard]] Words command(unsigned number, const std::string& nodes, const Words& steps,
                                const Words& flags = {}) const {
        return Words{regroup_program(), "run"} + node(number, nodes, rendezvous_.endpoint()) +
               Words{"--nproc-per-node=2", "--last-call=0.1"} + flags + Words{probe_program()} +
               steps;
    }
    [[nodiscard]] Words variables() const {
        return {"TERM=xterm-256color", "PROBE_DIR=" + folder(), "TMPDIR=" + folder()};
    }

    Rendezvous rendezvous_;
};

TEST_F(RunProgress, TerminalShowsTheWaitForNodesInOneRow) {
    PseudoTerminal first(command(1, "2", {"mark=up", "await=end"}), variables(), 24, 120);
    ASSERT_TRUE(first.shows("regroup: waiting: ")) << first.screen().text();
    const std::string before = first.screen().text();
    // The time that is left counts down.
    EXPECT_TRUE(first.until([&](const Screen& screen) {
        return screen.text().find("regroup: waiting: ") != std::string::npos &&
               screen.text() != before;
    }));
    const std::string now = first.screen().text();
    EXPECT_EQ(now.find("waiting: "), now.rfind("waiting: ")) << now;
    Program second(
        {command(2, "2", {"mark=up", "await=end"}), {"PROBE_DIR=" + folder()}, folder()});
    ASSERT_TRUE(first.shows("regroup: round 1: ranks ")) << first.screen().text();
    EXPECT_TRUE(first.until([](const Screen& screen) {
        return screen.text().find("waiting: ") == std::string::npos;
    })) << first.screen().text();
    release("end");
    EXPECT_EQ(first.wait(), 0) << first.screen().text();
}

TEST_F(RunProgress, TerminalShowsTheTimeUntilWorkersAreKilledBelowTheirOutput) {
    PseudoTerminal launcher(
        command(1, "1", {"ignore=15", "mark=up", "await=word", "say=still-here", "hold"},
                {"--shutdown-timeout=4"}),
        variables(), 24, 120);
    ASSERT_THAT(await_marks("up", 2), ::testing::SizeIs(2)) << launcher.screen().text();
    ::kill(launcher.pid(), SIGTERM);
    ASSERT_TRUE(launcher.shows("regroup: waiting for 2 workers to end; SIGKILL in "))
        << launcher.screen().text();
    release("word");
    ASSERT_TRUE(launcher.shows("still-here")) << launcher.screen().text();
    EXPECT_TRUE(launcher.shows("regroup: waiting for 2 workers to end; SIGKILL in "));
    EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.screen().text();
    EXPECT_THAT(launcher.screen().text(), Not(HasSubstr("SIGKILL in")));
}

TEST_F(RunProgress, LinesElsewhereHaveNoControlCharacters) {
    Program first(
        {command(1, "2", {"mark=up"}), {"PROBE_DIR=" + folder(), "TERM=xterm"}, folder()});
    ASSERT_TRUE(first.prints("regroup: waiting: ")) << first.output();
    Program second({command(2, "2", {"mark=up"}), {"PROBE_DIR=" + folder()}, folder()});
    EXPECT_THAT(ended(first), exits(0, Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
}

}  // namespace
}  // namespace regroup::testing
