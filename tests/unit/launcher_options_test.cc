// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <functional>

#include <gmock/gmock.h>

#include "launcher/run_options.h"
#include "launcher/worker_command.h"
#include "launcher_variables.h"

namespace regroup::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ScopedVariable;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

RunOptions parsed(const Arguments& arguments) {
    Result<std::variant<RunOptions, ShowText>> result = parse_run_options(Front::run, arguments);
    if (!result) {
        ADD_FAILURE() << result.error().detail;
        return {};
    }
    if (!std::holds_alternative<RunOptions>(*result)) {
        ADD_FAILURE() << "asked for help";
        return {};
    }
    return std::get<RunOptions>(*result);
}

std::string error_of(const Arguments& arguments) {
    const Result<std::variant<RunOptions, ShowText>> result =
        parse_run_options(Front::run, arguments);
    if (result) {
        return "no error";
    }
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
    EXPECT_THAT(result.error().detail, Not(HasSubstr("\n")));
    return result.error().detail;
}

TEST(LauncherOptions, DefaultsAreThoseOfTorchrun) {
    const RunOptions options = parsed({"train"});
    EXPECT_EQ(options.program, "train");
    EXPECT_EQ(options.nodes_min, 1U);
    EXPECT_EQ(options.nodes_max, 1U);
    EXPECT_EQ(options.workers, "1");
    EXPECT_EQ(options.role, "default");
    EXPECT_EQ(options.max_restarts, 0U);
    EXPECT_FALSE(options.standalone);
    EXPECT_EQ(options.rdzv_backend, "static");
    EXPECT_EQ(options.rdzv_endpoint, "");
    EXPECT_EQ(options.rdzv_id, "");
    EXPECT_EQ(options.node_rank, std::nullopt);
    EXPECT_EQ(options.master_port, std::nullopt);
    EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds(30));
    EXPECT_DOUBLE_EQ(options.monitor_interval, 0.1);
    EXPECT_EQ(options.log_dir, std::nullopt);
    EXPECT_FALSE(options.module);
    EXPECT_FALSE(options.no_python);
}

struct Flag {
    std::string name;
    std::string value;
    std::function<bool(const RunOptions&)> taken;
};

const std::vector<Flag>& flags_with_values() {
    using std::chrono::milliseconds;
    using std::chrono::seconds;
    static const std::vector<Flag> all = {
        {"--nnodes", "2:4",
         [](const RunOptions& o) { return o.nodes_min == 2 && o.nodes_max == 4; }},
        {"--nproc-per-node", "8", [](const RunOptions& o) { return o.workers == "8"; }},
        {"--max-restarts", "3", [](const RunOptions& o) { return o.max_restarts == 3; }},
        {"--role", "trainer", [](const RunOptions& o) { return o.role == "trainer"; }},
        {"--rdzv-backend", "c10d", [](const RunOptions& o) { return o.rdzv_backend == "c10d"; }},
        {"--rdzv-endpoint", "[::1]:29400",
         [](const RunOptions& o) { return o.rdzv_endpoint == "[::1]:29400"; }},
        {"--rdzv-id", "nightly", [](const RunOptions& o) { return o.rdzv_id == "nightly"; }},
        {"--node-rank", "1", [](const RunOptions& o) { return o.node_rank == 1U; }},
        {"--master-addr", "host0", [](const RunOptions& o) { return o.master_addr == "host0"; }},
        {"--master-port", "29501", [](const RunOptions& o) { return o.master_port == 29501; }},
        {"--local-addr", "10.0.0.7",
         [](const RunOptions& o) { return o.local_addr == "10.0.0.7"; }},
        {"--rank-order", "file:hosts",
         [](const RunOptions& o) { return o.rank_order.file == "hosts"; }},
        {"--join-timeout", "1.5",
         [](const RunOptions& o) { return o.join_timeout == milliseconds(1500); }},
        {"--last-call", "0", [](const RunOptions& o) { return o.last_call == seconds(0); }},
        {"--heartbeat-timeout", "0.25",
         [](const RunOptions& o) { return o.heartbeat_timeout == milliseconds(250); }},
        {"--shutdown-timeout", "7",
         [](const RunOptions& o) { return o.shutdown_timeout == seconds(7); }},
        {"--grow-after", "1e2", [](const RunOptions& o) { return o.grow_after == seconds(100); }},
        {"--monitor-interval", "0.5",
         [](const RunOptions& o) { return o.monitor_interval == 0.5; }},
        {"--hang-timeout", "600",
         [](const RunOptions& o) { return o.hang_timeout == std::chrono::minutes(10); }},
        {"--hang-factor", "7.5", [](const RunOptions& o) { return o.hang_factor == 7.5; }},
        {"--hang-floor", "60",
         [](const RunOptions& o) { return o.hang_floor == std::chrono::minutes(1); }},
        {"--stdin", "3",
         [](const RunOptions& o) {
             return o.stdin_reader == agent::StdinReader{agent::StdinReader::Who::rank, 3};
         }},
        {"--log-dir", "/tmp/logs", [](const RunOptions& o) { return o.log_dir == "/tmp/logs"; }},
        {"--redirects", "1", [](const RunOptions& o) { return o.redirects.all == 1; }},
        {"--tee", "0:3", [](const RunOptions& o) { return o.tee.by_local_rank.contains(0); }},
        {"--local-ranks-filter", "0,2",
         [](const RunOptions& o) { return o.local_ranks_filter == std::set<std::uint32_t>{0, 2}; }},
        {"--log-line-prefix-template", "${rank} ",
         [](const RunOptions& o) { return o.log_line_prefix == "${rank} "; }},
        {"--log-file-size", "2M",
         [](const RunOptions& o) { return o.log_file_bytes_max == std::uint64_t{2} << 20U; }},
        {"--event-log-handler", "console", [](const RunOptions& o) { return o.console_events; }},
        {"--signals-to-handle", "SIGINT",
         [](const RunOptions& o) { return o.signals == std::vector<int>{SIGINT}; }},
        {"--cpus-per-rank", "auto", [](const RunOptions& o) { return o.cpus_per_rank == "auto"; }},
        {"--gpus-per-rank", "2", [](const RunOptions& o) { return o.gpus_per_rank == "2"; }},
        {"--rdzv-conf", "is_host=1", [](const RunOptions& o) { return o.is_host == true; }},
    };
    return all;
}

std::string with_underscores(std::string flag) {
    std::replace(flag.begin() + 2, flag.end(), '-', '_');
    return flag;
}

std::string variable_of(const std::string& flag) {
    std::string name = "PET_" + with_underscores(flag).substr(2);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return name;
}

TEST(LauncherOptions, EachFlagIsTakenInBothSpellingsAndBothForms) {
    for (const Flag& flag : flags_with_values()) {
        EXPECT_FALSE(flag.taken(parsed({"train"}))) << flag.name;
        for (const std::string& name : {flag.name, with_underscores(flag.name)}) {
            EXPECT_TRUE(flag.taken(parsed({name, flag.value, "train"}))) << name;
            EXPECT_TRUE(flag.taken(parsed({name + "=" + flag.value, "train"}))) << name;
        }
    }
}

TEST(LauncherOptions, EachFlagHasItsDefaultInItsVariable) {
    for (const Flag& flag : flags_with_values()) {
        const ScopedVariable variable(variable_of(flag.name), flag.value.c_str());
        EXPECT_TRUE(flag.taken(parsed({"train"}))) << variable_of(flag.name);
    }
}

TEST(LauncherOptions, CommandLineWinsOverTheVariable) {
    const ScopedVariable variable("PET_NNODES", "7");
    EXPECT_EQ(parsed({"--nnodes=2", "train"}).nodes_max, 2U);
    const ScopedVariable nonsense("PET_MAX_RESTARTS", "many");
    EXPECT_EQ(parsed({"--max_restarts", "2", "train"}).max_restarts, 2U);
}

TEST(LauncherOptions, LastOfARepeatedFlagCounts) {
    EXPECT_EQ(parsed({"--nnodes=2", "--nnodes", "3", "train"}).nodes_max, 3U);
    EXPECT_EQ(parsed({"--max-restarts=2", "--max_restarts=4", "train"}).max_restarts, 4U);
}

TEST(LauncherOptions, TogglesTakeNoValue) {
    EXPECT_TRUE(parsed({"--standalone", "train"}).standalone);
    EXPECT_TRUE(parsed({"--no-python", "train"}).no_python);
    EXPECT_TRUE(parsed({"--no_python", "train"}).no_python);
    EXPECT_TRUE(parsed({"-m", "train"}).module);
    EXPECT_TRUE(parsed({"--module", "train"}).module);
    EXPECT_EQ(parsed({"-m", "package.train", "-x"}).program, "package.train");
    EXPECT_THAT(error_of({"-m", "--no-python", "train"}), HasSubstr("exclude each other"));
}

TEST(LauncherOptions, TogglesReadNumbersFromTheirVariables) {
    const ScopedVariable on("PET_STANDALONE", "1");
    const ScopedVariable off("PET_MODULE", "0");
    EXPECT_TRUE(parsed({"train"}).standalone);
    EXPECT_FALSE(parsed({"train"}).module);
    EXPECT_TRUE(parsed({"-m", "train"}).module);
}

TEST(LauncherOptions, InvalidVariableIsNamed) {
    const std::vector<std::pair<std::string, std::string>> nonsense{
        {"PET_NNODES", "two"},       {"PET_NPROC_PER_NODE", "all"}, {"PET_MAX_RESTARTS", "-1"},
        {"PET_RDZV_BACKEND", "zoo"}, {"PET_NODE_RANK", "1.5"},      {"PET_MASTER_PORT", "http"},
        {"PET_LAST_CALL", "soon"},   {"PET_STANDALONE", "yes"},     {"PET_NO_PYTHON", " "},
        {"PET_MODULE", "on"},        {"PET_MONITOR_INTERVAL", "0"}};
    for (const auto& [name, value] : nonsense) {
        const ScopedVariable variable(name, value.c_str());
        EXPECT_THAT(error_of({"train"}), HasSubstr(name)) << value;
        EXPECT_THAT(error_of({"train"}), HasSubstr("must be")) << value;
    }
}

// ---- The program and its arguments.

TEST(LauncherOptions, WordsAfterTheProgramAreItsArguments) {
    const RunOptions options =
        parsed({"--nnodes=2", "train.py", "--nnodes", "9", "--help", "-m", "--", "x", "--what"});
    EXPECT_EQ(options.nodes_max, 2U);
    EXPECT_EQ(options.program, "train.py");
    EXPECT_THAT(options.arguments,
                ElementsAre("--nnodes", "9", "--help", "-m", "--", "x", "--what"));
}

TEST(LauncherOptions, DoubleDashBeforeTheProgramIsSwallowedOnce) {
    EXPECT_THAT(parsed({"--nnodes=2", "--", "train", "--", "x"}).arguments, ElementsAre("--", "x"));
    EXPECT_EQ(parsed({"--", "--odd-name"}).program, "--odd-name");
    EXPECT_THAT(parsed({"--", "train", "--nnodes=3"}).arguments, ElementsAre("--nnodes=3"));
}

TEST(LauncherOptions, ArgumentsAreHandedOnUntouched) {
    EXPECT_THAT(parsed({"train", "", " a b ", "[1,2]", "k=v", "\"q\"", "ä"}).arguments,
                ElementsAre("", " a b ", "[1,2]", "k=v", "\"q\"", "ä"));
}

TEST(LauncherOptions, MissingProgramIsAnError) {
    EXPECT_THAT(error_of({}), HasSubstr("no program given"));
    EXPECT_THAT(error_of({"--nnodes=2"}), HasSubstr("no program given"));
    EXPECT_THAT(error_of({"--standalone", "--"}), HasSubstr("no program given"));
}

TEST(LauncherOptions, MisspelledVariableGetsASuggestion) {
    {
        const ScopedVariable misspelled("PET_NNODE", "2");
        const ScopedVariable unrelated("PET_UNRELATED_TOOL", "2");
        EXPECT_THAT(parsed({"train"}).notes,
                    ElementsAre(AllOf(HasSubstr("PET_NNODE "), HasSubstr("PET_NNODES?"))));
    }
    EXPECT_THAT(parsed({"train"}).notes, IsEmpty());
}

TEST(LauncherOptions, WordThatIsNoProgramIsQuotedWithAHint) {
    struct Case {
        const char* word;
        const char* hint;
    };
    for (const Case& one :
         {Case{"0x4 2", "has a blank"}, Case{"8", "value of a flag"},
          Case{"FOO=1", "write env before it"}, Case{"\xE2\x80\x93nnodes", "only looks like '-'"},
          Case{"-x", "before a --"}}) {
        std::vector<std::string> notes;
        const auto command = make_worker_command(parsed({"--", one.word}), 1, notes);
        ASSERT_FALSE(command) << one.word;
        EXPECT_THAT(command.error().detail, HasSubstr("'" + std::string(one.word) + "'"));
        EXPECT_THAT(command.error().detail, HasSubstr(one.hint));
    }
    std::vector<std::string> notes;
    const auto missing = make_worker_command(parsed({"missing.py"}), 1, notes);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().detail, HasSubstr("program 'missing.py' does not exist"));
}

TEST(LauncherOptions, FlagWithoutItsValueIsNamed) {
    EXPECT_THAT(error_of({"--nnodes"}), HasSubstr("--nnodes"));
    EXPECT_THAT(error_of({"train", "--nnodes"}), HasSubstr("no error"));
}

TEST(LauncherOptions, NegativeNumberIsAValueAndAFlagIsNot) {
    EXPECT_THAT(error_of({"--nnodes", "--standalone", "train"}),
                HasSubstr("--nnodes needs a value: --nnodes=2:4"));
    EXPECT_THAT(error_of({"--max-restarts", "-1", "train"}),
                AllOf(HasSubstr("--max-restarts"), HasSubstr("'-1'")));
}

// ---- Abbreviations, as argparse takes them.

TEST(LauncherOptions, UnambiguousBeginningsAreTaken) {
    EXPECT_TRUE(parsed({"--stand", "train"}).standalone);
    EXPECT_EQ(parsed({"--nproc_per", "2", "train"}).workers, "2");
    EXPECT_EQ(parsed({"--max-r=1", "train"}).max_restarts, 1U);
    EXPECT_EQ(parsed({"--nn", "2", "train"}).nodes_max, 2U);
    EXPECT_EQ(parsed({"--redirect=3", "train"}).redirects.all, 3);
    EXPECT_EQ(parsed({"--rdzv_b", "c10d", "train"}).rdzv_backend, "c10d");
}

TEST(LauncherOptions, BeginningsOfTwoSpellingsAreAmbiguous) {
    EXPECT_THAT(error_of({"--nproc=2", "train"}),
                AllOf(HasSubstr("ambiguous flag --nproc"), HasSubstr("--nproc-per-node"),
                      HasSubstr("--nproc_per_node")));
    EXPECT_THAT(error_of({"--rdzv", "c10d", "train"}), HasSubstr("ambiguous flag --rdzv"));
}

TEST(LauncherOptions, OwnFlagsDoNotMakeThoseOfTorchrunAmbiguous) {
    // --log-file-size begins like --log-dir and --log-line-prefix-template; --last-call like
    // nothing of torchrun's; --report-bindings like --redirects.
    EXPECT_EQ(parsed({"--log-d", "x", "train"}).log_dir, "x");
    EXPECT_EQ(parsed({"--log-f", "5k", "train"}).log_file_bytes_max, 5U << 10U);
    EXPECT_EQ(parsed({"--re", "1", "train"}).redirects.all, 1);
}

TEST(LauncherOptions, LettersTakeTheirValueInThreeForms) {
    for (const Arguments& form : {Arguments{"-r", "2"}, Arguments{"-r2"}, Arguments{"-r=2"}}) {
        Arguments line = form;
        line.push_back("train");
        EXPECT_EQ(parsed(line).redirects.all, 2);
    }
    EXPECT_TRUE(parsed({"-t0:1,10:3", "train"}).tee.has(10, agent::StreamSpec::kErr));
}

TEST(LauncherOptions, TogglesRefuseAValue) {
    EXPECT_THAT(error_of({"--standalone=1", "train"}), HasSubstr("--standalone takes no value"));
}

// ---- Streams, signals, settings.

TEST(LauncherOptions, StreamsAreForAllOrByLocalRank) {
    const RunOptions all = parsed({"--redirects=1", "--tee=3", "train"});
    EXPECT_TRUE(all.redirects.has(7, agent::StreamSpec::kOut));
    EXPECT_FALSE(all.redirects.has(7, agent::StreamSpec::kErr));
    EXPECT_TRUE(all.tee.has(0, agent::StreamSpec::kErr));
    const RunOptions some = parsed({"--redirects=0:3,12:2", "train"});
    EXPECT_TRUE(some.redirects.has(0, agent::StreamSpec::kOut));
    EXPECT_FALSE(some.redirects.has(1, agent::StreamSpec::kOut));
    EXPECT_TRUE(some.redirects.has(12, agent::StreamSpec::kErr));
    EXPECT_FALSE(some.redirects.has(12, agent::StreamSpec::kOut));
    for (const char* bad : {"4", "-1", "x", "0:4", "a:1", ":1", "0:1;1:1", "", "11", "0:1,", ",0:1",
                            "0:1,1", "1,0:1"}) {
        EXPECT_THAT(error_of({std::string("--tee=") + bad, "train"}), HasSubstr("--tee must be"))
            << bad;
    }
}

TEST(LauncherOptions, NeedlesMayHoldCommas) {
    EXPECT_THAT(parsed({"--tee=3", "--duplicate-stdout-filters=loss,a,,b,", "t"}).stdout_needles,
                ElementsAre("loss", "a,b"));
}

TEST(LauncherOptions, SignalsAreNamed) {
    const RunOptions options = parsed({"--signals-to-handle=SIGTERM,SIGUSR1", "train"});
    EXPECT_THAT(options.signals, ElementsAre(SIGTERM, SIGUSR1));
    EXPECT_EQ(options.signal_names, "SIGTERM,SIGUSR1");
    EXPECT_THAT(parsed({"train"}).signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
    EXPECT_THAT(error_of({"--signals-to-handle=TERM", "train"}), HasSubstr("'TERM'"));
    EXPECT_THAT(error_of({"--signals-to-handle=SIGKILL", "train"}), HasSubstr("SIGKILL"));
}

TEST(LauncherOptions, ConfSettingsAreTranslatedAndOverruledByFlags) {
    using std::chrono::seconds;
    const RunOptions options = parsed(
        {"--rdzv-conf= join_timeout = 7,last_call_timeout=2,keep_alive_interval=4,is_host=No",
         "train"});
    EXPECT_EQ(options.join_timeout, seconds(7));
    EXPECT_EQ(options.last_call, seconds(2));
    EXPECT_EQ(options.heartbeat_timeout, seconds(12));
    EXPECT_EQ(options.is_host, false);
    EXPECT_EQ(parsed({"--last-call=9", "--rdzv-conf=last_call_timeout=2", "train"}).last_call,
              seconds(9));
    EXPECT_EQ(parsed({"--rdzv-conf=timeout=11", "train"}).join_timeout, seconds(11));
    EXPECT_THAT(parsed({"--rdzv-conf=read_timeout=5,colour=red", "train"}).unused_conf,
                ElementsAre("colour", "read_timeout"));
}

TEST(LauncherOptions, ConfMistakesAreNamed) {
    for (const char* bad :
         {"join_timeout=0", "join_timeout=x", "last_call_timeout=0.5", "is_host=maybe",
          "store_type=file", "join_timeout", "=5", "a=", "join_timeout=1,join_timeout=2"}) {
        EXPECT_THAT(error_of({std::string("--rdzv-conf=") + bad, "train"}),
                    HasSubstr("--rdzv-conf"))
            << bad;
    }
}

TEST(LauncherOptions, FlagsWithoutEffectAreRefused) {
    EXPECT_THAT(error_of({"--log-dir=/dev/null", "--tee=3", "train"}), HasSubstr("--log-dir"));
    EXPECT_THAT(error_of({"--duplicate-stdout-filters=x", "train"}), HasSubstr("--tee"));
    EXPECT_THAT(error_of({"--logs-specs=mine", "train"}), HasSubstr("--logs-specs mine"));
    EXPECT_EQ(parsed({"--logs_specs=default", "train"}).program, "train") << "PyTorch's own";
    EXPECT_THAT(error_of({"--event-log-handler=kafka", "train"}), HasSubstr("'kafka'"));
    EXPECT_THAT(error_of({"--stdin=first", "train"}),
                AllOf(HasSubstr("--stdin"), HasSubstr("'first'")));
    EXPECT_THAT(error_of({"--nproc-per-node=xpu", "train"}), HasSubstr("xpu"));
}

TEST(LauncherOptions, ShutdownTimeoutPrefersItsOwnVariableToTorchs) {
    using std::chrono::seconds;
    const ScopedVariable torch("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5");
    EXPECT_EQ(parsed({"train"}).shutdown_timeout, seconds(5));
    const ScopedVariable own("PET_SHUTDOWN_TIMEOUT", "6");
    EXPECT_EQ(parsed({"train"}).shutdown_timeout, seconds(6));
    EXPECT_EQ(parsed({"--shutdown-timeout=7", "train"}).shutdown_timeout, seconds(7));
}

TEST(LauncherOptions, LaunchHasUseEnv) {
    const auto use_env = [](Front front) {
        return parse_run_options(front, Arguments{"--use-env", "train.py"});
    };
    EXPECT_TRUE(std::get<RunOptions>(*use_env(Front::launch)).use_env);
    EXPECT_FALSE(use_env(Front::run));
    const auto refused = parse_run_options(Front::launch, Arguments{"--no-python", "train"});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().detail, HasSubstr("--use-env"));
}

TEST(LauncherOptions, CompletionNamesTheFlags) {
    for (const char* shell : {"bash", "zsh", "tcsh"}) {
        const auto shown = parse_run_options(Front::run, Arguments{"--print-completion", shell});
        ASSERT_TRUE(shown) << shown.error().detail;
        EXPECT_THAT(std::get<ShowText>(*shown).text, HasSubstr("nproc-per-node")) << shell;
    }
    EXPECT_THAT(error_of({"--print-completion=fish", "t"}), HasSubstr("'fish'"));
}

// ---- Mistakes.

TEST(LauncherOptions, UnknownFlagSuggestsTheNearest) {
    EXPECT_THAT(error_of({"--nproc-pernode=2", "train"}),
                AllOf(StartsWith("unknown flag --nproc-pernode"),
                      HasSubstr("did you mean --nproc-per-node?")));
    EXPECT_THAT(error_of({"--max_restrats", "3", "train"}),
                HasSubstr("did you mean --max_restarts?"));
    EXPECT_THAT(error_of({"--standalnoe", "train"}), HasSubstr("did you mean --standalone?"));
    EXPECT_THAT(
        error_of({"--colour-of-the-sky", "train"}),
        AllOf(HasSubstr("unknown flag --colour-of-the-sky"), Not(HasSubstr("did you mean"))));
    EXPECT_THAT(error_of({"-q", "train"}), HasSubstr("unknown flag -q"));
}

TEST(LauncherOptions, ValuesOutOfRangeAreNamedWithTheirFlag) {
    const std::vector<std::pair<std::string, std::vector<std::string>>> bad{
        {"--nnodes", {"0", "-1", "x", "", "1:", ":2", "1:2:3", "2.5", "0:2", "4294967296", " 2"}},
        {"--nproc-per-node", {"0", "-1", "65537", "gpus", "1.5", ""}},
        {"--max-restarts", {"-1", "1000001", "x", "1.0", "99999999999999999999"}},
        {"--node-rank", {"-1", "x"}},
        {"--master-port", {"0", "65536", "x", "-1"}},
        {"--join-timeout", {"-1", "x", "1s", "nan", "inf", "2592001"}},
        {"--heartbeat-timeout", {"-1", "x", "3600.1"}},
        {"--shutdown-timeout", {"2592001"}},
        {"--last-call", {"2592001"}},
        {"--grow-after", {"2592001"}},
        {"--regroup-window", {"2592001"}},
        {"--prepare-timeout", {"0", "2592001"}},
        {"--restart-delay", {"2592001"}},
        {"--node-failures-window", {"0", "2592001"}},
        {"--rdzv-conf",
         {"join_timeout=2592001", "last_call_timeout=2592001",
          "keep_alive_interval=61,keep_alive_max_attempt=60"}},
        {"--monitor-interval", {"0", "-0.1", "x"}},
        {"--hang-factor", {"0.5", "-1", "x", ""}},
        {"--hang-floor", {"0", "-1", "x"}},
        {"--hang-timeout", {"-1", "x"}},
        {"--rdzv-backend", {"zookeeper", "C10D"}},
        {"--role", {std::string(256, 'r'), "two\nlines"}},
        {"--rdzv-id", {std::string(256, 'i'), "\x1b[2J"}},
        {"--local-addr", {std::string(256, 'a')}},
    };
    for (const auto& [flag, values] : bad) {
        for (const std::string& value : values) {
            const std::string argument = std::string(flag).append("=").append(value);
            EXPECT_THAT(error_of({argument, "train"}), HasSubstr(flag)) << value;
        }
    }
    EXPECT_THAT(error_of({"--log-dir", "", "train"}), HasSubstr("--log-dir must not be empty"));
    EXPECT_THAT(error_of({"--role", "", "train"}), HasSubstr("--role must not be empty"));
}

TEST(LauncherOptions, MinimumAboveMaximumNamesBoth) {
    EXPECT_THAT(error_of({"--nnodes=4:2", "train"}),
                AllOf(HasSubstr("--nnodes"), HasSubstr("minimum, 4, exceeds the maximum, 2")));
}

TEST(LauncherOptions, FirstOfSeveralMistakesIsReported) {
    EXPECT_THAT(error_of({"--nnodes=x", "--max-restarts=y", "train"}), HasSubstr("--nnodes"));
}

TEST(LauncherOptions, BoundsAreAccepted) {
    EXPECT_EQ(parsed({"--nproc-per-node=65536", "t"}).workers, "65536");
    EXPECT_EQ(parsed({"--master-port=65535", "t"}).master_port, 65535);
    EXPECT_EQ(parsed({"--master-port=1", "t"}).master_port, 1);
    EXPECT_EQ(parsed({"--join-timeout=2592000", "t"}).join_timeout, rendezvous::kWaitMax);
    EXPECT_EQ(parsed({"--heartbeat-timeout=3600", "t"}).heartbeat_timeout,
              rendezvous::kHeartbeatTimeoutMax);
    EXPECT_THAT(error_of({"--heartbeat-timeout=3601", "t"}),
                HasSubstr("--heartbeat-timeout must be at most 3600 seconds, not '3601'"));
    EXPECT_EQ(parsed({"--nnodes=1:1", "t"}).nodes_max, 1U);
    for (const char* workers : {"cpu", "gpu", "auto"}) {
        EXPECT_EQ(parsed({std::string("--nproc-per-node=") + workers, "t"}).workers, workers);
    }
    for (const char* backend : {"static", "c10d", "etcd", "etcd-v2", "regroup"}) {
        EXPECT_EQ(parsed({std::string("--rdzv-backend=") + backend, "t"}).rdzv_backend, backend);
    }
}

// ---- Help.

TEST(LauncherOptions, HelpNamesEveryFlagWithItsDefault) {
    for (const char* help : {"--help", "-h"}) {
        const Result<std::variant<RunOptions, ShowText>> result =
            parse_run_options(Front::run, Arguments{"--nnodes=x", help});
        ASSERT_TRUE(result) << result.error().detail;
        const std::string text = std::get<ShowText>(*result).text;
        for (const Flag& flag : flags_with_values()) {
            EXPECT_THAT(text, HasSubstr("--" + flag.name.substr(2) + " "));
        }
        EXPECT_THAT(text, AllOf(HasSubstr("--standalone"), HasSubstr("-m, --module"),
                                HasSubstr("--no-python"), HasSubstr("Usage: regroup run"),
                                HasSubstr("[29500]"), HasSubstr("PET_<NAME>")));
        EXPECT_THAT(text, EndsWith("\n"));
    }
}

TEST(LauncherOptions, NearestIsSimilarOrNothing) {
    const Arguments candidates{"run", "serve", "version"};
    EXPECT_EQ(nearest("rum", candidates), "run");
    EXPECT_EQ(nearest("sevre", candidates), "serve");
    EXPECT_EQ(nearest("", candidates), std::nullopt);
    EXPECT_EQ(nearest("elephants", candidates), std::nullopt);
}

}  // namespace
}  // namespace regroup::launcher
