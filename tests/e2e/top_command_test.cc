// SPDX-License-Identifier: Apache-2.0
//
// `regroup top` on a pseudo terminal, and without one, beside a real daemon and a real job.
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/top/terminal.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"
#include "tests/support/pseudo_terminal.h"

namespace regroup::testing {
namespace {

class TopCommand : public EndToEnd {
   protected:
    [[nodiscard]] static Words command(const std::string& endpoint, const Words& more = {}) {
        return Words{regroup_program(), "top", "--endpoint=" + endpoint, "--interval=0.2"} + more;
    }
    [[nodiscard]] static Words variables(const std::string& kind = "xterm-256color") {
        return {"TERM=" + kind, "LANG=C.UTF-8"};
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number,
                                                      const std::string& endpoint) const {
        return start_run(node(number, "1:2", endpoint) + Words{"--nproc-per-node=2",
                                                               "--last-call=30", "--max-restarts=4",
                                                               elastic_probe_program()});
    }
};

TEST_F(TopCommand, ScreenShowsTheRecoveryOfAKilledWorker) {
    Rendezvous daemon;
    PseudoTerminal top(command(daemon.endpoint()), variables());
    ASSERT_TRUE(top.shows("no jobs")) << top.screen().text();
    EXPECT_TRUE(top.screen().is_alternate());
    EXPECT_FALSE(top.is_cooked());
    auto a = start_node(1, daemon.endpoint());
    auto b = start_node(2, daemon.endpoint());
    const auto first = await_marks("up", 4);
    ASSERT_THAT(first, SizeIs(4)) << a->output() << b->output();
    ASSERT_TRUE(top.shows("1 job, 2 nodes, 4 ranks")) << top.screen().text();
    top.type("\r");
    ASSERT_TRUE(top.shows("job job: training, round 1")) << top.screen().text();
    // The terminal may show a part of a screen.
    ASSERT_TRUE(top.shows("127.0.0.2")) << top.screen().text();
    ASSERT_TRUE(top.shows("127.0.0.3")) << top.screen().text();
    ::kill(pid_of(first.at(3)), SIGKILL);
    ASSERT_TRUE(top.shows("job job: training, round 2")) << top.screen().text();
    ASSERT_TRUE(top.shows("1 recovery took")) << top.screen().text();
    for (const char* text :
         {"last failure", "was ended by SIGKILL", "  round 2 after ", "failures 1 of 4"}) {
        EXPECT_TRUE(top.shows(text)) << text << "\n" << top.screen().text();
    }
    // Only the nodes that match stay.
    top.type("/0.3\r");
    ASSERT_TRUE(top.shows("filter: 0.3"));
    ASSERT_TRUE(top.until([](const Screen& screen) {
        return screen.text().find("127.0.0.2") == std::string::npos;
    })) << top.screen().text();
    top.type("?");
    ASSERT_TRUE(top.shows("It changes nothing."));
    top.type("x\x1b");
    ASSERT_TRUE(top.shows("127.0.0.2")) << top.screen().text();
    // The arrow down in application mode.
    top.type("\x1bOB");
    for (const auto& [rows, columns] : {std::pair(30, 120), std::pair(10, 40), std::pair(24, 80)}) {
        top.resize(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
        EXPECT_TRUE(top.until([&](const Screen& screen) {
            return screen.row(static_cast<std::size_t>(rows) - 1).starts_with("Esc all jobs") &&
                   screen.row(0).starts_with("regroup top");
        })) << top.screen().text();
    }
    top.type("q");
    EXPECT_EQ(top.wait(), 0);
    EXPECT_FALSE(top.screen().is_alternate());
    EXPECT_TRUE(top.screen().shows_cursor());
    EXPECT_TRUE(top.is_cooked());
}

TEST_F(TopCommand, ScreenFollowsTheNextDaemonAndSaysSinceWhenNoneAnswers) {
    const Words flags{"--listen=127.0.0.1:" + std::to_string(unused_port())};
    auto daemon = std::make_unique<Rendezvous>(flags);
    PseudoTerminal top(command(daemon->endpoint()), variables());
    ASSERT_TRUE(top.shows("no jobs")) << top.screen().text();
    daemon->program().signal(SIGKILL);
    daemon.reset();
    ASSERT_TRUE(top.shows("no status for ")) << top.screen().text();
    ASSERT_TRUE(top.shows("cannot connect to ")) << top.screen().text();
    EXPECT_THAT(top.screen().text(), HasSubstr(" UTC: "));
    daemon = std::make_unique<Rendezvous>(flags);
    EXPECT_TRUE(top.until([](const Screen& screen) {
        return screen.text().find("no status") == std::string::npos;
    })) << top.screen().text();
    for (const int number : {SIGTERM}) {
        ::kill(top.pid(), number);
        EXPECT_EQ(top.wait(), 128 + number);
        EXPECT_FALSE(top.screen().is_alternate());
        EXPECT_TRUE(top.is_cooked());
    }
}

TEST_F(TopCommand, SuspendedScreenGivesTheTerminalBackAndReturns) {
    Rendezvous daemon;
    std::string words;
    for (const std::string& word : command(daemon.endpoint())) {
        words += "'" + word + "' ";
    }
    // A shell with job control.
    PseudoTerminal shell(
        {"/bin/sh", "-c", "set -m; " + words + "; echo stopped; read key; fg; echo ended $?"},
        variables());
    ASSERT_TRUE(shell.shows("no jobs")) << shell.screen().text();
    shell.type("\x1a");
    ASSERT_TRUE(shell.shows("stopped")) << shell.screen().text();
    EXPECT_FALSE(shell.screen().is_alternate());
    EXPECT_TRUE(shell.is_cooked());
    shell.type("\n");
    ASSERT_TRUE(shell.shows("no jobs")) << shell.screen().text();
    EXPECT_TRUE(shell.screen().is_alternate());
    shell.type("q");
    EXPECT_TRUE(shell.shows("ended 0")) << shell.screen().text();
    EXPECT_EQ(shell.wait(), 0);
}

TEST_F(TopCommand, InterruptEndsItAndRestoresTheTerminal) {
    Rendezvous daemon;
    PseudoTerminal top(command(daemon.endpoint()), variables("vt100"));
    ASSERT_TRUE(top.shows("no jobs")) << top.screen().text();
    top.type("\x03");
    EXPECT_EQ(top.wait(), 128 + SIGINT);
    EXPECT_TRUE(top.is_cooked());
}

TEST_F(TopCommand, PlainTerminalGetsNoColorsAndNothingButAscii) {
    Rendezvous daemon;
    PseudoTerminal top(command(daemon.endpoint()),
                       {"TERM=xterm-256color", "NO_COLOR=1", "LC_ALL=C"});
    ASSERT_TRUE(top.shows("no jobs")) << top.screen().text();
    top.type("q");
    EXPECT_EQ(top.wait(), 0);
    for (const char* color : {"\x1b[31", "\x1b[32", "\x1b[33", "\x1b[36"}) {
        EXPECT_THAT(top.bytes(), Not(HasSubstr(color)));
    }
    EXPECT_TRUE(std::ranges::all_of(top.bytes(),
                                    [](char c) { return static_cast<unsigned char>(c) < 128; }));
}

TEST_F(TopCommand, TerminalWithoutCursorGetsLines) {
    Rendezvous daemon;
    for (const char* kind : {"dumb", "no-such-terminal"}) {
        PseudoTerminal top(command(daemon.endpoint(), {"--count=2"}), variables(kind));
        EXPECT_EQ(top.wait(), 0) << top.bytes();
        EXPECT_THAT(top.bytes(), saying("TIME          JOB", "no jobs", Not(HasSubstr("\x1b"))));
        EXPECT_TRUE(top.is_cooked());
    }
}

TEST_F(TopCommand, WithoutATerminalItPrintsALinePerJobAtEachInterval) {
    Rendezvous daemon;
    auto a = start_node(1, daemon.endpoint());
    auto b = start_node(2, daemon.endpoint());
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << a->output() << b->output();
    Program top({command(daemon.endpoint(), {"--count=3", "--job=job"}), {}, ""});
    EXPECT_EQ(top.wait(), 0);
    const auto lines = lines_of(top.output());
    ASSERT_THAT(lines, SizeIs(4)) << top.output();
    EXPECT_THAT(lines[0], StartsWith("TIME "));
    for (std::size_t i = 1; i < lines.size(); ++i) {
        EXPECT_THAT(lines[i], HasSubstr(" UTC  job               training       1      2      4"));
    }
}

TEST_F(TopCommand, LinesSayWhenTheDaemonIsSilentAndWhenItIsBack) {
    const Words flags{"--listen=127.0.0.1:" + std::to_string(unused_port())};
    auto daemon = std::make_unique<Rendezvous>(flags);
    Program top({command(daemon->endpoint()), {}, ""});
    ASSERT_TRUE(top.prints("no jobs")) << top.output();
    daemon.reset();
    ASSERT_TRUE(top.prints("regroup top: no status since ")) << top.output();
    daemon = std::make_unique<Rendezvous>(flags);
    EXPECT_TRUE(top.prints("regroup top: the daemon answers again")) << top.output();
}

TEST_F(TopCommand, MistakesAndAbsentDaemonsAreReported) {
    const auto run = [](const Words& words) {
        Program top({Words{regroup_program(), "top"} + words, {}, ""});
        const int code = top.wait().value_or(-1);
        return std::pair(code, top.output());
    };
    const auto absent =
        run({"--timeout=1", "--endpoint=127.0.0.1:" + std::to_string(unused_port())});
    EXPECT_EQ(absent.first, 3);
    EXPECT_THAT(absent.second, StartsWith("regroup top: no daemon has answered within 1.0 s"));
    EXPECT_EQ(run({"--interval=0.1"}).first, 2);
    EXPECT_EQ(run({"--interval=61"}).first, 2);
    EXPECT_EQ(run({"job"}).first, 2);
    Rendezvous daemon;
    const auto no_job = run({"--endpoint=" + daemon.endpoint(), "--job=jbo"});
    EXPECT_EQ(no_job.first, 1);
    EXPECT_EQ(no_job.second, "regroup top: there is no job jbo; the daemon has none\n");
}

TEST(TopTerminal, ExceptionRestoresTheTerminal) {
    using launcher::top::Terminal;
    PseudoTerminal child([] {
        ::setenv("TERM", "xterm", 1);
        try {
            const auto terminal = Terminal::open();
            (*terminal)->draw({{{"before the end", launcher::top::Style::normal}}});
            throw std::runtime_error("the end");
        } catch (const std::exception&) {
            return;
        }
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_THAT(child.bytes(), HasSubstr("before"));
    EXPECT_FALSE(child.screen().is_alternate());
    EXPECT_TRUE(child.screen().shows_cursor());
    EXPECT_TRUE(child.is_cooked());
}

}  // namespace
}  // namespace regroup::testing
