// SPDX-License-Identifier: Apache-2.0
//
// The decisions and the messages of `regroup launch-ssh`, without ssh.
#include <algorithm>
#include <csignal>
#include <unistd.h>
#include <variant>

#include "agent/process/line_splitter.h"
#include "launcher/ssh/decisions.h"
#include "launcher/ssh/environment.h"
#include "launcher/ssh/host_session.h"
#include "launcher/ssh/messages.h"
#include "launcher/ssh/options.h"
#include "launcher_variables.h"
#include "rendezvous/protocol/framing.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::launcher::ssh {
namespace {

using testing::ScopedVariable;
using Words = std::vector<std::string>;

LaunchOptions parsed(const Words& words) {
    Result<std::variant<LaunchOptions, ShowText>> result = parse_launch_options(words);
    if (!result) {
        ADD_FAILURE() << result.error().detail;
        return {};
    }
    return std::get<LaunchOptions>(*result);
}

std::string error_of(const Words& words) {
    const auto result = parse_launch_options(words);
    if (result) {
        return "no error";
    }
    EXPECT_THAT(result.error().detail, Not(HasSubstr("\n")));
    return result.error().detail;
}

TEST(LaunchSshOptions, FlagsOfRunArePassedOnInFullSpelling) {
    const LaunchOptions options =
        parsed({"--hosts=a:8,b", "--max_restarts", "3", "-t3", "-x", "SEED=7", "--nnodes=1:2",
                "--virtual-local-rank", "-xHF_HOME", "--rdzv-backend=c10d", "--token-file=mine",
                "--workdir=w", "./train", "--hosts=mine", "-x"});
    EXPECT_EQ(options.hosts, "a:8,b");
    EXPECT_THAT(options.exports, ElementsAre("SEED=7", "HF_HOME"));
    EXPECT_THAT(options.run_flags,
                ElementsAre("--max-restarts=3", "--tee=3", "--nnodes=1:2", "--virtual-local-rank"));
    EXPECT_EQ(options.folder, "w");
    EXPECT_EQ(options.run.program.program, "./train");
    EXPECT_THAT(options.run.program.arguments, ElementsAre("--hosts=mine", "-x"));
    EXPECT_EQ(options.run.agent.core.policy.restarts_max, 3U);
    EXPECT_EQ(options.run.trust.token_file, "mine");
    EXPECT_TRUE(options.gives_nodes);
    EXPECT_FALSE(options.gives_workers);
    EXPECT_FALSE(options.gives_endpoint);
}

TEST(LaunchSshOptions, VariablesCountAsGiven) {
    const ScopedVariable nodes("PET_NNODES", "2:3");
    const LaunchOptions options = parsed({"--hosts=a", "./train"});
    EXPECT_TRUE(options.gives_nodes);
    EXPECT_EQ(options.run.agent.core.policy.nodes_max, 3U);
    EXPECT_THAT(options.run_flags, ElementsAre());
}

TEST(LaunchSshOptions, HelpIsOfThisCommand) {
    const auto help = parse_launch_options(Words{"--help"});
    ASSERT_TRUE(help);
    EXPECT_THAT(std::get<ShowText>(*help).text, saying("--hostfile", "Exit code", "-x, --export",
                                                       Not(HasSubstr("--heartbeat-timeout"))));
}

TEST(LaunchSshOptions, MistakesAreNamed) {
    EXPECT_THAT(error_of({"./train"}), HasSubstr("--hosts=a:8,b:8 or --hostfile=FILE"));
    EXPECT_THAT(error_of({"--hosts=a", "--hostfile=f", "./train"}), HasSubstr("exclude"));
    EXPECT_THAT(error_of({"--hosts=a"}), HasSubstr("no program"));
    EXPECT_THAT(error_of({"--hosts=a", "--standalone", "t"}), HasSubstr("--standalone"));
    EXPECT_THAT(error_of({"--hosts=a", "--node-rank=0", "t"}), HasSubstr("--node-rank"));
    EXPECT_THAT(error_of({"--hosts=a", "--master-addr=a", "t"}), HasSubstr("--master-addr"));
    EXPECT_THAT(error_of({"--hosts=a", "--rdzv-backend=static", "t"}), HasSubstr("static"));
    EXPECT_THAT(error_of({"--hosts=a", "--rdzv-conf=is_host=1", "t"}), HasSubstr("is_host"));
    EXPECT_THAT(error_of({"--hosts=a", "--connect-timeout=0", "t"}), HasSubstr("at least 1"));
    EXPECT_THAT(error_of({"--hosts=a", "--nnodes=x", "t"}), HasSubstr("--nnodes"));
    EXPECT_THAT(error_of({"--hosts=a", "--module", "--no-python", "t"}), HasSubstr("exclude"));
    EXPECT_THAT(error_of({"--hsots=a", "t"}), HasSubstr("did you mean --hosts?"));
}

TEST(LaunchSshOptions, NodesMustFitTheHosts) {
    const auto check = [](const Words& flags, std::size_t hosts) {
        Words words{"--hosts=a"};
        words.insert(words.end(), flags.begin(), flags.end());
        words.push_back("t");
        const Result<void> checked = check_node_count(parsed(words), hosts);
        return checked ? "" : checked.error().detail;
    };
    EXPECT_EQ(check({}, 3), "");
    EXPECT_EQ(check({"--nnodes=2:3"}, 3), "");
    EXPECT_EQ(check({"--nnodes=2:8"}, 3), "");
    EXPECT_EQ(check({"--nnodes=2", "--standbys=1"}, 3), "");
    EXPECT_THAT(check({"--nnodes=2"}, 3), HasSubstr("--standbys"));
    EXPECT_THAT(check({"--nnodes=4"}, 3), HasSubstr("4 nodes at least"));
    EXPECT_EQ(check({"--nnodes=4", "--rdzv-endpoint=head"}, 3), "");
}

TEST(LaunchSshOptions, ClientIsSplitAsByAShell) {
    EXPECT_THAT(*split_command("ssh"), ElementsAre("ssh"));
    EXPECT_THAT(*split_command("ssh -p 2222 -i 'my key' -o \"User=a b\""),
                ElementsAre("ssh", "-p", "2222", "-i", "my key", "-o", "User=a b"));
    for (const char* text : {"", "ssh; reboot", "ssh $(reboot)", "ssh `x`", "ssh | x", "ssh 'x"}) {
        EXPECT_FALSE(split_command(text)) << text;
    }
}

TEST(LaunchSshEnvironment, OnlyKnownAndExportedVariablesPass) {
    const auto passed = environment_for_hosts(
        {"PATH=/bin", "HOME=/root", "NCCL_DEBUG=INFO", "PET_NNODES=2", "SSH_AUTH_SOCK=/s",
         "REGROUP_TOKEN_FILE=/t", "REGROUP_GROUP_SECRET_FILE=/s", "REGROUP_TLS_CA=/ca",
         "PYTHONPATH=a b", "SECRET=x", "SEED=1", "BASH_FUNC_f%%=() { :; }", "EMPTY="},
        {"SEED", "X=a=b\n'\"$", "EMPTY", "NCCL_DEBUG=WARN", "X=last'\n"});
    ASSERT_TRUE(passed);
    EXPECT_THAT(*passed,
                ElementsAre("EMPTY=", "NCCL_DEBUG=WARN", "PATH=/bin", "PET_NNODES=2",
                            "PYTHONPATH=a b", "REGROUP_TLS_CA=/ca", "SEED=1", "X=last'\n"));
}

TEST(LaunchSshEnvironment, MistakesDoNotShowValues) {
    for (const char* text : {"", "=x", "7=x", "a-b=secret", "UNSET", "a b=secret"}) {
        EXPECT_THAT(environment_for_hosts({}, {text}), fails(Not(HasSubstr("secret")))) << text;
    }
}

TEST(LaunchSshMessages, OrdersKeepEveryByte) {
    const std::string odd = "a'b\"\\ \n\xff\xfe$(x)";
    Result<std::string> frame =
        encode(ssh::Setup{"w", "a", "/x y", {"X=" + odd}, std::chrono::seconds(70)});
    ASSERT_TRUE(frame);
    Result<Order> order = decode(frame->substr(protocol::kFrameHeaderBytes));
    ASSERT_TRUE(order);
    const auto& setup = std::get<ssh::Setup>(*order);
    EXPECT_EQ(setup.word, "w");
    EXPECT_EQ(setup.host, "a");
    EXPECT_EQ(setup.folder, "/x y");
    EXPECT_THAT(setup.environment, ElementsAre("X=" + odd));
    EXPECT_EQ(setup.start_limit, std::chrono::seconds(70));

    frame = encode(Start{3, true, {"-t", odd, ""}, "regroup1.x"});
    ASSERT_TRUE(frame);
    order = decode(frame->substr(protocol::kFrameHeaderBytes));
    ASSERT_TRUE(order);
    const auto& start = std::get<Start>(*order);
    EXPECT_EQ(start.index, 3U);
    EXPECT_EQ(start.is_head, std::optional(true));
    EXPECT_THAT(start.arguments, ElementsAre("-t", odd, ""));
    EXPECT_EQ(start.token, "regroup1.x");
}

TEST(LaunchSshMessages, ForeignBytesAreRefused) {
    for (const std::string& bytes :
         {std::string(), std::string("{}"), std::string("\x81\xa4kind\xa5setup"),
          std::string(64, '\xff'), std::string("\x81\xa4kind\xa6signal")}) {
        EXPECT_FALSE(decode(bytes));
    }
    EXPECT_FALSE(encode(Start{0, {}, {std::string(protocol::kFrameBytesMax, 'x')}, ""}));
}

TEST(LaunchSshMessages, ReportsNeedTheWordOfTheirNode) {
    const std::string line = line_of("w0rd", Ended{7, 0, true, {"a\xff", "b\n\x1b"}});
    ASSERT_THAT(line, ::testing::EndsWith("\n"));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const std::string text = line.substr(0, line.size() - 1);
    const auto report = parse_line("w0rd", text);
    ASSERT_TRUE(report);
    const auto& ended = std::get<Ended>(*report);
    EXPECT_EQ(ended.exit_code, 7);
    EXPECT_TRUE(ended.by_verdict);
    EXPECT_THAT(ended.report, ElementsAre(HasSubstr("a"), "b\n\x1b"));
    EXPECT_FALSE(parse_line("other", text));
    EXPECT_TRUE(parse_line("w0rd", "[a:0] half of a li" + text));
    EXPECT_FALSE(parse_line("w0rd", text.substr(0, text.size() - 1)));
    EXPECT_FALSE(parse_line("w0rd", "regroup-ssh w0rd {\"kind\":\"ready\",\"address\":7}"));
}

TEST(LaunchSshMessages, LauncherEndsOnlyAsALauncherCan) {
    for (const Ended& ended : {Ended{128 + SIGINT, SIGINT, false, {}}, Ended{255, 0, true, {}}}) {
        EXPECT_TRUE(parse_line("w", line_of("w", ended)));
    }
    for (const Ended& ended :
         {Ended{1, SIGSTOP, false, {}}, Ended{1, SIGSEGV, false, {}}, Ended{1, -1, false, {}},
          Ended{256, 0, true, {}}, Ended{-1, 0, true, {}}}) {
        EXPECT_FALSE(parse_line("w", line_of("w", ended))) << ended.exit_code << ended.signal;
    }
}

TEST(LaunchSshMessages, ReportFitsALine) {
    const Ended ended{1, 0, true, Words(40, std::string(4000, '\x01'))};
    EXPECT_LT(line_of("w", ended).size(), agent::LineSplitter::kLineBytesMax);
}

TEST(LaunchSshDecisions, HeadIsTheFirstHostThatOthersReach) {
    EXPECT_EQ(choose_head({{"a", "10.0.0.1"}, {"b", "10.0.0.2"}}), 0U);
    EXPECT_EQ(choose_head({{"localhost", "127.0.0.1"}, {"x", ""}, {"b", "10.0.0.2"}}), 2U);
    EXPECT_EQ(choose_head({{"localhost", "::1"}, {"b", "127.0.0.3"}}), 0U);
}

TEST(LaunchSshDecisions, EndpointIsAnAddressIfOthersCanUseIt) {
    EXPECT_EQ(endpoint_host({"alias", "10.0.0.1"}), "10.0.0.1");
    EXPECT_EQ(endpoint_host({"alias", "fd00::7"}), "fd00::7");
    EXPECT_EQ(endpoint_host({"node7", "fe80::1%eth0"}), "node7");
    EXPECT_EQ(endpoint_host({"node7", ""}), "node7");
    EXPECT_EQ(endpoint_host({"node7", "UNKNOWN"}), "node7");
}

TEST(LaunchSshDecisions, EndingIsThatOfTheJob) {
    const auto ended = [](int code, int signal = 0) {
        return HostEnding(CommandEnd{.exit_code = code, .signal = signal});
    };
    const auto judged = [](int code) {
        return HostEnding(CommandEnd{.exit_code = code, .by_verdict = true});
    };
    EXPECT_EQ(common_ending({judged(0), judged(0)}, std::nullopt).exit_code, 0);
    EXPECT_EQ(common_ending({std::nullopt, judged(0)}, std::nullopt).exit_code, 0);
    EXPECT_EQ(common_ending({ended(75), judged(7)}, std::nullopt).exit_code, 7);
    EXPECT_EQ(common_ending({ended(75), ended(75)}, std::nullopt).exit_code, 75);
    EXPECT_EQ(common_ending({ended(75), ended(130, SIGINT)}, std::nullopt).signal, SIGINT);
    EXPECT_EQ(common_ending({std::nullopt, ended(3)}, std::nullopt).exit_code, 3);
    EXPECT_EQ(common_ending({std::nullopt, std::nullopt}, std::nullopt).exit_code, kExitSshFailed);
    EXPECT_EQ(common_ending({judged(255)}, std::nullopt).exit_code, 255);
    EXPECT_EQ(common_ending({judged(1), ended(130, SIGINT)}, std::nullopt).exit_code, 1);
    EXPECT_EQ(common_ending({judged(1), ended(130, SIGINT)}, std::nullopt, true).signal, SIGINT);
    EXPECT_EQ(common_ending({judged(0), ended(130, SIGINT)}, std::nullopt, true).exit_code, 0);
    EXPECT_EQ(common_ending({ended(75), judged(75)}, std::nullopt, true).exit_code, 75);
    EXPECT_EQ(common_ending({judged(1), judged(0)}, std::nullopt).exit_code, 0);
    EXPECT_EQ(common_ending({judged(1), judged(0)}, 0).exit_code, 1) << "that of the daemon";
    EXPECT_EQ(common_ending({judged(3), judged(7)}, 1).exit_code, 7);
    EXPECT_EQ(common_ending({judged(1), judged(0)}, 1).exit_code, 0);
    EXPECT_EQ(common_ending({ended(75), judged(0)}, 0).exit_code, 0) << "it left before the end";
}

/// The lines and the reports of a client, in the order in which they came.
std::string output_of_client(const Words& command) {
    boost::asio::io_context io;
    const SteadyClock clock;
    agent::LinuxLauncher launcher(io);
    std::string all;
    HostSession session(
        io, clock, "word",
        {.on_report = [&](const Report& report) { all += line_of("word", report); },
         .on_lines = [&](bool, std::string_view lines, std::size_t) { all += lines; },
         .on_end = [&](agent::ExitStatus) { io.stop(); }});
    const Result<void> started = session.start(launcher, command);
    EXPECT_TRUE(started) << started.error().detail;
    // All of the output waits in the pipe, and the client has ended.
    const std::vector<pid_t> clients = testing::children_of(::getpid());
    EXPECT_TRUE(testing::eventually([&] {
        return std::ranges::none_of(clients, [](pid_t pid) { return testing::is_alive(pid); });
    }));
    io.run();
    return all;
}

TEST(LaunchSshSession, OutputOfAClientThatHasEndedIsComplete) {
    std::string expected;
    for (int i = 1000; i < 9000; ++i) {
        expected += std::to_string(i) + "\n";
    }
    const std::string report = line_of("word", Ended{7, 0, true, {"a report"}});
    EXPECT_EQ(output_of_client({"/bin/sh", "-c", "seq 1000 8999; printf %s \"$0\"", report}),
              expected + report);
}

}  // namespace
}  // namespace regroup::launcher::ssh
