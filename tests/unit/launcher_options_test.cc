// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <functional>

#include "launcher/run_flags.h"
#include "launcher/worker_command.h"
#include "launcher_variables.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

using testing::ScopedVariable;
using Arguments = std::vector<std::string>;

RunFlags parsed(const Arguments& arguments) {
    Result<std::variant<RunFlags, ShowText>> result = parse_run_flags(Front::run, arguments);
    if (!result) {
        ADD_FAILURE() << result.error().detail;
        return {};
    }
    if (!std::holds_alternative<RunFlags>(*result)) {
        ADD_FAILURE() << "asked for help";
        return {};
    }
    return std::get<RunFlags>(*result);
}

std::string error_of(const Arguments& arguments) {
    const Result<std::variant<RunFlags, ShowText>> result = parse_run_flags(Front::run, arguments);
    if (result) {
        return "no error";
    }
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
    EXPECT_THAT(result.error().detail, Not(HasSubstr("\n")));
    return result.error().detail;
}

TEST(LauncherOptions, DefaultsAreThoseOfTorchrun) {
    const RunFlags options = parsed({"train"});
    EXPECT_EQ(options.program.program, "train");
    EXPECT_EQ(options.agent.core.policy.nodes_min, 1U);
    EXPECT_EQ(options.agent.core.policy.nodes_max, 1U);
    EXPECT_EQ(options.workers, "1");
    EXPECT_EQ(options.agent.core.offer.role, "default");
    EXPECT_EQ(options.agent.core.policy.restarts_max, 0U);
    EXPECT_FALSE(options.rendezvous.standalone);
    EXPECT_EQ(options.rendezvous.backend, "static");
    EXPECT_EQ(options.rendezvous.endpoint, "");
    EXPECT_EQ(options.agent.core.job, "");
    EXPECT_EQ(options.agent.core.offer.slot, std::nullopt);
    EXPECT_EQ(options.rendezvous.master_port, std::nullopt);
    EXPECT_EQ(options.agent.core.policy.shutdown_timeout, std::chrono::seconds(30));
    EXPECT_EQ(options.log_dir, std::nullopt);
    EXPECT_FALSE(options.program.module);
    EXPECT_FALSE(options.program.no_python);
}

struct Flag {
    std::string name;
    std::string value;
    std::function<bool(const RunFlags&)> taken;
};

const std::vector<Flag>& flags_with_values() {
    using std::chrono::milliseconds;
    using std::chrono::seconds;
    static const std::vector<Flag> all = {
        {"--nnodes", "2:4",
         [](const auto& o) {
             return o.agent.core.policy.nodes_min == 2 && o.agent.core.policy.nodes_max == 4;
         }},
        {"--nproc-per-node", "8", [](const auto& o) { return o.workers == "8"; }},
        {"--max-restarts", "3",
         [](const auto& o) { return o.agent.core.policy.restarts_max == 3; }},
        {"--role", "trainer", [](const auto& o) { return o.agent.core.offer.role == "trainer"; }},
        {"--rdzv-backend", "c10d", [](const auto& o) { return o.rendezvous.backend == "c10d"; }},
        {"--rdzv-endpoint", "[::1]:29400",
         [](const auto& o) { return o.rendezvous.endpoint == "[::1]:29400"; }},
        {"--rdzv-id", "nightly", [](const auto& o) { return o.agent.core.job == "nightly"; }},
        {"--node-rank", "1", [](const auto& o) { return o.agent.core.offer.slot == 1U; }},
        {"--master-addr", "host0",
         [](const auto& o) { return o.rendezvous.master_addr == "host0"; }},
        {"--master-port", "29501", [](const auto& o) { return o.rendezvous.master_port == 29501; }},
        {"--local-addr", "10.0.0.7",
         [](const auto& o) { return o.agent.core.offer.address == "10.0.0.7"; }},
        {"--rank-order", "file:hosts",
         [](const auto& o) { return o.rendezvous.rank_file == "hosts"; }},
        {"--join-timeout", "1.5",
         [](const auto& o) { return o.agent.core.join_timeout == milliseconds(1500); }},
        {"--last-call", "0",
         [](const auto& o) { return o.agent.core.policy.last_call == seconds(0); }},
        {"--heartbeat-timeout", "0.25",
         [](const auto& o) { return o.agent.core.policy.heartbeat_timeout == milliseconds(250); }},
        {"--shutdown-timeout", "7",
         [](const auto& o) { return o.agent.core.policy.shutdown_timeout == seconds(7); }},
        {"--grow-after", "1e2",
         [](const auto& o) { return o.agent.core.policy.grow_after == seconds(100); }},
        {"--hang-timeout", "600",
         [](const auto& o) { return o.agent.watch.limits.most == std::chrono::minutes(10); }},
        {"--hang-factor", "7.5", [](const auto& o) { return o.agent.watch.limits.factor == 7.5; }},
        {"--hang-floor", "60",
         [](const auto& o) { return o.agent.watch.limits.floor == std::chrono::minutes(1); }},
        {"--stdin", "3",
         [](const auto& o) {
             return o.agent.group.output.stdin_reader ==
                    agent::StdinReader{agent::StdinReader::Who::rank, 3};
         }},
        {"--log-dir", "/tmp/logs", [](const auto& o) { return o.log_dir == "/tmp/logs"; }},
        {"--redirects", "1", [](const auto& o) { return o.agent.group.output.redirects.all == 1; }},
        {"--tee", "0:3",
         [](const auto& o) { return o.agent.group.output.tee.by_local_rank.contains(0); }},
        {"--local-ranks-filter", "0,2",
         [](const auto& o) {
             return o.agent.group.output.console_ranks == std::set<std::uint32_t>{0, 2};
         }},
        {"--log-line-prefix-template", "${rank} ",
         [](const auto& o) { return o.agent.group.output.line_prefix == "${rank} "; }},
        {"--log-file-size", "2M",
         [](const auto& o) {
             return o.agent.group.output.file_bytes_max == std::uint64_t{2} << 20U;
         }},
        {"--event-log-handler", "console", [](const auto& o) { return o.console_events; }},
        {"--signals-to-handle", "SIGINT",
         [](const auto& o) { return o.signals == std::vector<int>{SIGINT}; }},
        {"--cpus-per-rank", "auto",
         [](const auto& o) { return o.placement.request.cpus_per_rank == agent::CpusPerRank{}; }},
        {"--gpus-per-rank", "2", [](const auto& o) { return o.placement.gpus_per_rank == 2U; }},
        {"--rdzv-conf", "is_host=1", [](const auto& o) { return o.rendezvous.is_host == true; }},
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
    EXPECT_EQ(parsed({"--nnodes=2", "train"}).agent.core.policy.nodes_max, 2U);
    const ScopedVariable nonsense("PET_MAX_RESTARTS", "many");
    EXPECT_EQ(parsed({"--max_restarts", "2", "train"}).agent.core.policy.restarts_max, 2U);
}

TEST(LauncherOptions, LastOfARepeatedFlagCounts) {
    EXPECT_EQ(parsed({"--nnodes=2", "--nnodes", "3", "train"}).agent.core.policy.nodes_max, 3U);
    EXPECT_EQ(
        parsed({"--max-restarts=2", "--max_restarts=4", "train"}).agent.core.policy.restarts_max,
        4U);
}

TEST(LauncherOptions, TogglesTakeNoValue) {
    EXPECT_TRUE(parsed({"--standalone", "train"}).rendezvous.standalone);
    EXPECT_TRUE(parsed({"--no-python", "train"}).program.no_python);
    EXPECT_TRUE(parsed({"--no_python", "train"}).program.no_python);
    EXPECT_TRUE(parsed({"-m", "train"}).program.module);
    EXPECT_TRUE(parsed({"--module", "train"}).program.module);
    EXPECT_EQ(parsed({"-m", "package.train", "-x"}).program.program, "package.train");
}

TEST(LauncherOptions, TogglesReadNumbersFromTheirVariables) {
    const ScopedVariable on("PET_STANDALONE", "1");
    const ScopedVariable off("PET_MODULE", "0");
    EXPECT_TRUE(parsed({"train"}).rendezvous.standalone);
    EXPECT_FALSE(parsed({"train"}).program.module);
    EXPECT_TRUE(parsed({"-m", "train"}).program.module);
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
    const RunFlags options =
        parsed({"--nnodes=2", "train.py", "--nnodes", "9", "--help", "-m", "--", "x", "--what"});
    EXPECT_EQ(options.agent.core.policy.nodes_max, 2U);
    EXPECT_EQ(options.program.program, "train.py");
    EXPECT_THAT(options.program.arguments,
                ElementsAre("--nnodes", "9", "--help", "-m", "--", "x", "--what"));
}

TEST(LauncherOptions, DoubleDashBeforeTheProgramIsSwallowedOnce) {
    EXPECT_THAT(parsed({"--nnodes=2", "--", "train", "--", "x"}).program.arguments,
                ElementsAre("--", "x"));
    EXPECT_EQ(parsed({"--", "--odd-name"}).program.program, "--odd-name");
    EXPECT_THAT(parsed({"--", "train", "--nnodes=3"}).program.arguments, ElementsAre("--nnodes=3"));
}

TEST(LauncherOptions, ArgumentsAreHandedOnUntouched) {
    EXPECT_THAT(parsed({"train", "", " a b ", "[1,2]", "k=v", "\"q\"", "ä"}).program.arguments,
                ElementsAre("", " a b ", "[1,2]", "k=v", "\"q\"", "ä"));
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
        EXPECT_THAT(make_worker_command(parsed({"--", one.word}), 1, notes),
                    fails("'" + std::string(one.word) + "'", one.hint))
            << one.word;
    }
    std::vector<std::string> notes;
    const auto missing = make_worker_command(parsed({"missing.py"}), 1, notes);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().detail, HasSubstr("program 'missing.py' does not exist"));
}

// ---- Abbreviations, as argparse takes them.

TEST(LauncherOptions, UnambiguousBeginningsAreTaken) {
    EXPECT_TRUE(parsed({"--stand", "train"}).rendezvous.standalone);
    EXPECT_EQ(parsed({"--nproc_per", "2", "train"}).workers, "2");
    EXPECT_EQ(parsed({"--max-r=1", "train"}).agent.core.policy.restarts_max, 1U);
    EXPECT_EQ(parsed({"--nn", "2", "train"}).agent.core.policy.nodes_max, 2U);
    EXPECT_EQ(parsed({"--redirect=3", "train"}).agent.group.output.redirects.all, 3);
    EXPECT_EQ(parsed({"--rdzv_b", "c10d", "train"}).rendezvous.backend, "c10d");
}

TEST(LauncherOptions, OwnFlagsDoNotMakeThoseOfTorchrunAmbiguous) {
    // --log-file-size begins like --log-dir and --log-line-prefix-template; --last-call like
    // nothing of torchrun's; --report-bindings like --redirects.
    EXPECT_EQ(parsed({"--log-d", "x", "train"}).log_dir, "x");
    EXPECT_EQ(parsed({"--log-f", "5k", "train"}).agent.group.output.file_bytes_max, 5U << 10U);
    EXPECT_EQ(parsed({"--re", "1", "train"}).agent.group.output.redirects.all, 1);
}

TEST(LauncherOptions, LettersTakeTheirValueInThreeForms) {
    for (const Arguments& form : {Arguments{"-r", "2"}, Arguments{"-r2"}, Arguments{"-r=2"}}) {
        Arguments line = form;
        line.push_back("train");
        EXPECT_EQ(parsed(line).agent.group.output.redirects.all, 2);
    }
    EXPECT_TRUE(
        parsed({"-t0:1,10:3", "train"}).agent.group.output.tee.has(10, agent::StreamSpec::kErr));
}

// ---- Streams, signals, settings.

TEST(LauncherOptions, StreamsAreForAllOrByLocalRank) {
    const RunFlags all = parsed({"--redirects=1", "--tee=3", "train"});
    EXPECT_TRUE(all.agent.group.output.redirects.has(7, agent::StreamSpec::kOut));
    EXPECT_FALSE(all.agent.group.output.redirects.has(7, agent::StreamSpec::kErr));
    EXPECT_TRUE(all.agent.group.output.tee.has(0, agent::StreamSpec::kErr));
    const RunFlags some = parsed({"--redirects=0:3,12:2", "train"});
    EXPECT_TRUE(some.agent.group.output.redirects.has(0, agent::StreamSpec::kOut));
    EXPECT_FALSE(some.agent.group.output.redirects.has(1, agent::StreamSpec::kOut));
    EXPECT_TRUE(some.agent.group.output.redirects.has(12, agent::StreamSpec::kErr));
    EXPECT_FALSE(some.agent.group.output.redirects.has(12, agent::StreamSpec::kOut));
}

TEST(LauncherOptions, NeedlesMayHoldCommas) {
    EXPECT_THAT(parsed({"--tee=3", "--duplicate-stdout-filters=loss,a,,b,", "t"})
                    .agent.group.output.stdout_needles,
                ElementsAre("loss", "a,b"));
}

TEST(LauncherOptions, SignalsAreNamed) {
    const RunFlags options = parsed({"--signals-to-handle=SIGTERM,SIGUSR1", "train"});
    EXPECT_THAT(options.signals, ElementsAre(SIGTERM, SIGUSR1));
    EXPECT_EQ(options.agent.group.command.signals_to_handle, "SIGTERM,SIGUSR1");
    EXPECT_THAT(parsed({"train"}).signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
}

TEST(LauncherOptions, ConfSettingsAreTranslatedAndOverruledByFlags) {
    using std::chrono::seconds;
    const RunFlags options = parsed(
        {"--rdzv-conf= join_timeout = 7,last_call_timeout=2,keep_alive_interval=4,is_host=No",
         "train"});
    EXPECT_EQ(options.agent.core.join_timeout, seconds(7));
    EXPECT_EQ(options.agent.core.policy.last_call, seconds(2));
    EXPECT_EQ(options.agent.core.policy.heartbeat_timeout, seconds(12));
    EXPECT_EQ(options.rendezvous.is_host, false);
    EXPECT_EQ(parsed({"--last-call=9", "--rdzv-conf=last_call_timeout=2", "train"})
                  .agent.core.policy.last_call,
              seconds(9));
    EXPECT_EQ(parsed({"--rdzv-conf=timeout=11", "train"}).agent.core.join_timeout, seconds(11));
    EXPECT_THAT(parsed({"--rdzv-conf=read_timeout=5,colour=red", "train"}).rendezvous.unused_conf,
                ElementsAre("colour", "read_timeout"));
}

TEST(LauncherOptions, ShutdownTimeoutPrefersItsOwnVariableToTorchs) {
    using std::chrono::seconds;
    const ScopedVariable torch("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5");
    EXPECT_EQ(parsed({"train"}).agent.core.policy.shutdown_timeout, seconds(5));
    const ScopedVariable own("PET_SHUTDOWN_TIMEOUT", "6");
    EXPECT_EQ(parsed({"train"}).agent.core.policy.shutdown_timeout, seconds(6));
    EXPECT_EQ(parsed({"--shutdown-timeout=7", "train"}).agent.core.policy.shutdown_timeout,
              seconds(7));
}

TEST(LauncherOptions, LaunchHasUseEnv) {
    const auto use_env = [](Front front) {
        return parse_run_flags(front, Arguments{"--use-env", "train.py"});
    };
    EXPECT_TRUE(std::get<RunFlags>(*use_env(Front::launch)).program.use_env);
    EXPECT_FALSE(use_env(Front::run));
    EXPECT_THAT(parse_run_flags(Front::launch, Arguments{"--no-python", "train"}),
                fails("--use-env"));
}

TEST(LauncherOptions, CompletionNamesTheFlags) {
    for (const char* shell : {"bash", "zsh", "tcsh"}) {
        const auto shown = parse_run_flags(Front::run, Arguments{"--print-completion", shell});
        ASSERT_TRUE(shown) << shown.error().detail;
        EXPECT_THAT(std::get<ShowText>(*shown).text, HasSubstr("nproc-per-node")) << shell;
    }
}

// ---- Mistakes.

TEST(LauncherOptions, MistakesAreNamed) {
    const std::vector<std::pair<Arguments, std::vector<std::string>>> mistakes{
        {{}, {"no program given"}},
        {{"--nnodes=2"}, {"no program given"}},
        {{"--standalone", "--"}, {"no program given"}},
        {{"--nnodes"}, {"--nnodes"}},
        {{"--nnodes", "--standalone", "train"}, {"--nnodes needs a value: --nnodes=2:4"}},
        {{"--max-restarts", "-1", "train"}, {"--max-restarts", "'-1'"}},
        {{"--standalone=1", "train"}, {"--standalone takes no value"}},
        {{"-m", "--no-python", "train"}, {"exclude each other"}},
        {{"--nproc=2", "train"},
         {"ambiguous flag --nproc", "--nproc-per-node", "--nproc_per_node"}},
        {{"--rdzv", "c10d", "train"}, {"ambiguous flag --rdzv"}},
        {{"--nproc-pernode=2", "train"},
         {"unknown flag --nproc-pernode", "did you mean --nproc-per-node?"}},
        {{"--max_restrats", "3", "train"}, {"did you mean --max_restarts?"}},
        {{"--standalnoe", "train"}, {"did you mean --standalone?"}},
        {{"-q", "train"}, {"unknown flag -q"}},
        {{"--signals-to-handle=TERM", "train"}, {"'TERM'"}},
        {{"--signals-to-handle=SIGKILL", "train"}, {"SIGKILL"}},
        {{"--log-dir=/dev/null", "--tee=3", "train"}, {"--log-dir"}},
        {{"--duplicate-stdout-filters=x", "train"}, {"--tee"}},
        {{"--logs-specs=mine", "train"}, {"--logs-specs mine"}},
        {{"--event-log-handler=kafka", "train"}, {"'kafka'"}},
        {{"--stdin=first", "train"}, {"--stdin", "'first'"}},
        {{"--nproc-per-node=xpu", "train"}, {"xpu"}},
        {{"--print-completion=fish", "train"}, {"'fish'"}},
        {{"--log-dir", "", "train"}, {"--log-dir must not be empty"}},
        {{"--role", "", "train"}, {"--role must not be empty"}},
        {{"--heartbeat-timeout=3601", "train"},
         {"--heartbeat-timeout must be at most 3600 seconds, not '3601'"}},
        {{"--nnodes=4:2", "train"}, {"--nnodes", "minimum, 4, exceeds the maximum, 2"}},
        {{"--nnodes=x", "--max-restarts=y", "train"}, {"--nnodes"}},
    };
    for (const auto& [arguments, words] : mistakes) {
        for (const std::string& word : words) {
            EXPECT_THAT(error_of(arguments), HasSubstr(word));
        }
    }
    EXPECT_THAT(
        error_of({"--colour-of-the-sky", "train"}),
        AllOf(StartsWith("unknown flag --colour-of-the-sky"), Not(HasSubstr("did you mean"))));
    EXPECT_EQ(parsed({"train", "--nnodes"}).program.program, "train");
    EXPECT_EQ(parsed({"--logs_specs=default", "train"}).program.program, "train")
        << "PyTorch's own";
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
          "keep_alive_interval=61,keep_alive_max_attempt=60", "join_timeout=0", "join_timeout=x",
          "last_call_timeout=0.5", "is_host=maybe", "store_type=file", "join_timeout", "=5",
          "a=", "join_timeout=1,join_timeout=2"}},
        {"--tee must be",
         {"4", "-1", "x", "0:4", "a:1", ":1", "0:1;1:1", "", "11", "0:1,", ",0:1", "0:1,1",
          "1,0:1"}},
        {"--monitor-interval", {"0", "-0.1", "x"}},
        {"--hang-factor", {"0.5", "-1", "x", ""}},
        {"--hang-floor", {"0", "-1", "x"}},
        {"--hang-timeout", {"-1", "x"}},
        {"--rdzv-backend", {"zookeeper", "C10D"}},
        {"--role", {std::string(256, 'r'), "two\nlines"}},
        {"--rdzv-id", {std::string(256, 'i'), "\x1b[2J"}},
        {"--local-addr", {std::string(256, 'a')}},
    };
    for (const auto& [named, values] : bad) {
        for (const std::string& value : values) {
            const std::string flag = named.substr(0, named.find(' '));
            EXPECT_THAT(error_of({flag + "=" + value, "train"}), HasSubstr(named)) << value;
        }
    }
}

TEST(LauncherOptions, BoundsAreAccepted) {
    EXPECT_EQ(parsed({"--nproc-per-node=65536", "t"}).workers, "65536");
    EXPECT_EQ(parsed({"--master-port=65535", "t"}).rendezvous.master_port, 65535);
    EXPECT_EQ(parsed({"--master-port=1", "t"}).rendezvous.master_port, 1);
    EXPECT_EQ(parsed({"--join-timeout=2592000", "t"}).agent.core.join_timeout,
              rendezvous::kWaitMax);
    EXPECT_EQ(parsed({"--heartbeat-timeout=3600", "t"}).agent.core.policy.heartbeat_timeout,
              rendezvous::kHeartbeatTimeoutMax);
    EXPECT_EQ(parsed({"--nnodes=1:1", "t"}).agent.core.policy.nodes_max, 1U);
    for (const char* workers : {"cpu", "gpu", "auto"}) {
        EXPECT_EQ(parsed({std::string("--nproc-per-node=") + workers, "t"}).workers, workers);
    }
    for (const char* backend : {"static", "c10d", "etcd", "etcd-v2", "regroup"}) {
        EXPECT_EQ(parsed({std::string("--rdzv-backend=") + backend, "t"}).rendezvous.backend,
                  backend);
    }
}

// ---- Help.

TEST(LauncherOptions, HelpNamesEveryFlagWithItsDefault) {
    for (const char* help : {"--help", "-h"}) {
        const Result<std::variant<RunFlags, ShowText>> result =
            parse_run_flags(Front::run, Arguments{"--nnodes=x", help});
        ASSERT_TRUE(result) << result.error().detail;
        const std::string text = std::get<ShowText>(*result).text;
        for (const Flag& flag : flags_with_values()) {
            EXPECT_THAT(text, HasSubstr("--" + flag.name.substr(2) + " "));
        }
        EXPECT_THAT(text, saying("--standalone", "-m, --module", "--no-python",
                                 "Usage: regroup run", "[29500]", "PET_<NAME>"));
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
