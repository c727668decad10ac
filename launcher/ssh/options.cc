// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/options.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <wordexp.h>

#include "launcher/completion.h"
#include "launcher/flag_values.h"
#include "launcher/run_flag_table.h"

namespace regroup::launcher::ssh {
namespace {

constexpr const char* kCommand = "regroup launch-ssh";

constexpr const char* kIntroduction =
    "Start a job on several hosts from this one: connect to each host by ssh, start its node "
    "there,\n"
    "show the output of all, and end when the job ends. A host needs this program, yours, and an\n"
    "ssh login without a password. It needs no token: the launcher sends one over the connection.";

constexpr const char* kFooter =
    "All flags of `regroup run` are taken, too, and mean the same on each host, such as\n"
    "--max-restarts, --log-dir or --health (regroup run --help explains them). Of these:\n"
    "  --nnodes=MIN:MAX     starts without the hosts that do not answer if MIN hosts do\n"
    "  --nproc-per-node=N   counts for all hosts, instead of the numbers in the list\n"
    "  --token-file=FILE    is read here; without it, and without a usual token, the job gets a\n"
    "                       token of its own\n"
    "  --rdzv-endpoint=...  names a daemon or another port; without it the first host that "
    "answers\n"
    "                       starts the daemon on a free port\n"
    "\n"
    "Ctrl-C or SIGTERM asks all nodes to save and leave; the second one kills the workers; the\n"
    "third one closes the connections. A node whose connection closes ends, as after SIGHUP.\n"
    "Your ssh configuration applies. The launcher adds BatchMode, ConnectTimeout and\n"
    "ServerAliveInterval; options in --ssh override the last two.\n"
    "\n"
    "Examples:\n"
    "  regroup launch-ssh --hosts=a:8,b:8 ./train --epochs 5\n"
    "  regroup launch-ssh --hosts='gpu[01-16]' --nproc-per-node=gpu --nnodes=14:16 ./train\n"
    "  regroup launch-ssh --hostfile=hosts --max-restarts=3 -x HF_HOME -x SEED=7 -- python3 t.py\n"
    "\n"
    "Exit code: that of `regroup run` for the job; 255 if ssh failed: too few hosts answered, or\n"
    "no node has reported its end; 2 for a mistake on the command line.";

void declare_own_flags(FlagTable& flags, LaunchOptions& out) {
    flags.group("Hosts");
    flags.value({"--hosts", "[USER@]HOST[:N],...", "",
                 "The hosts, each with the number of its workers. node[1-4,7]:8 stands for five "
                 "hosts. Without a number a host has --nproc-per-node workers",
                 "--hosts=a:8,b:8", "-", true},
                text_into(out.hosts));
    flags.value({"--hostfile", "FILE", "",
                 "A file with one host on a line, in the form of Open MPI (a slots=8), Hydra (a:8) "
                 "or DeepSpeed (a slots=8)",
                 "--hostfile=hosts", "-", true},
                text_into(out.host_file));
    flags.value({"--ssh", "COMMAND", "ssh",
                 "The program that connects, with its flags. It is searched in PATH",
                 "--ssh='ssh -p 2222 -i ~/.ssh/cluster'", "-", true},
                text_into(out.ssh));
    flags.value({"--connect-timeout", "SECONDS", "10",
                 "Longest time to reach a host. The start of its node may take as long again. 64 "
                 "hosts are reached at a time",
                 "--connect-timeout=30", "-", true},
                [&out](const std::string& text) -> std::string {
                    const std::string wrong =
                        seconds_into(out.connect_timeout, std::chrono::hours(1))(text);
                    return wrong.empty() && out.connect_timeout < std::chrono::seconds(1)
                               ? "must be at least 1"
                               : wrong;
                });
    flags.group("On the hosts");
    flags.value({"--workdir", "DIR", "the same as here", "Folder in which the program starts",
                 "--workdir=/scratch/run7", "-", true},
                text_into(out.folder));
    flags.value({"--regroup", "PATH", "the same as here", "Path of the program regroup",
                 "--regroup=/opt/regroup/bin/regroup", "-", true},
                text_into(out.regroup));
    flags.value({"-x,--export", "NAME[=VALUE]", "",
                 "Pass an environment variable on; may be repeated. Passed on anyway: PATH, "
                 "LD_LIBRARY_PATH, and those that begin with CUDA_, GLOO_, NCCL_, OMP_, PET_, "
                 "PYTHON, REGROUP_, TORCH_ or UCX_",
                 "-x HF_HOME -x SEED=7", "-", true},
                [&out](const std::string& text) -> std::string {
                    out.exports.push_back(text);
                    return "";
                });
}

void describe(FlagTable& flags) {
    flags.usage = "regroup launch-ssh --hosts=LIST|--hostfile=FILE [FLAGS] PROGRAM [ARGUMENTS...]";
    flags.first_word_is_program = true;
    flags.introduction = kIntroduction;
    flags.footer = kFooter;
}

// The help of this command alone.
Result<std::variant<LaunchOptions, ShowText>> own_help() {
    LaunchOptions ignored;
    FlagTable flags(kCommand, /*has_torchrun=*/true);
    describe(flags);
    declare_own_flags(flags, ignored);
    const std::vector<std::string> ask{"--help"};
    auto parsed = flags.parse(ask);
    if (!parsed) {
        return parsed.error();
    }
    return std::variant<LaunchOptions, ShowText>(std::get<ShowText>(*std::move(parsed)));
}

Result<void> check_fitting(const FlagTable& flags, const RunFlags& run,
                           const SpecialFlags& special) {
    constexpr std::array kNotHere{"--standalone", "--node-rank", "--master-addr", "--master-port",
                                  "--local-addr"};
    for (const char* flag : kNotHere) {
        if (flags.was_set(flag)) {
            return Failure(Errc::invalid_argument,
                           std::string(flag) +
                               " is for a single node; the launcher itself gives the nodes of all "
                               "hosts their places (unset its variable PET_..., if that is set)");
        }
    }
    if (flags.was_set("--rdzv-backend") && run.rendezvous.backend == "static") {
        return Failure(Errc::invalid_argument,
                       "--rdzv-backend=static is for nodes with fixed ranks; leave it out");
    }
    if (special.conf.contains("is_host")) {
        return Failure(Errc::invalid_argument,
                       "--rdzv-conf: is_host is for a single node; the launcher chooses the host");
    }
    return {};
}

// Mistakes that `regroup run` would find on every host.
Result<RunFlags> check_run(const LaunchOptions& options, const std::vector<std::string>& rest) {
    std::vector<std::string> words = options.run_flags;
    // With an endpoint no scheduler is asked for one.
    words.insert(words.end(), {"--rdzv-backend=regroup", "--rdzv-endpoint=127.0.0.1:1", "--"});
    words.insert(words.end(), rest.begin(), rest.end());
    auto parsed = parse_run_flags(Front::run, words);
    if (!parsed) {
        return parsed.error();
    }
    return std::get<RunFlags>(*std::move(parsed));
}

}  // namespace

Result<std::variant<LaunchOptions, ShowText>> parse_launch_options(
    std::span<const std::string> arguments) {
    using Parsed = std::variant<LaunchOptions, ShowText>;
    LaunchOptions options;
    RunFlags run;
    SpecialFlags special;
    FlagTable flags(kCommand, /*has_torchrun=*/true);
    describe(flags);
    declare_own_flags(flags, options);
    const std::vector<std::string> own_names = flags.names();
    declare_run_flags(flags, run, special);

    auto parsed = flags.parse(arguments);
    if (!parsed) {
        return parsed.error();
    }
    if (std::holds_alternative<ShowText>(*parsed)) {
        return own_help();
    }
    if (!special.shell.empty()) {
        return Parsed(ShowText{completion(kCommand, flags.names(), special.shell)});
    }
    if (options.hosts.empty() == options.host_file.empty()) {
        return Failure(Errc::invalid_argument,
                       options.hosts.empty()
                           ? "no hosts are given: --hosts=a:8,b:8 or --hostfile=FILE"
                           : "--hosts and --hostfile exclude each other");
    }
    if (const Result<void> fits = check_fitting(flags, run, special); !fits) {
        return fits.error();
    }
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.empty()) {
        return Failure(Errc::invalid_argument, "no program given (usage: " + flags.usage + ")");
    }
    std::set<std::string> decided(own_names.begin(), own_names.end());
    decided.insert({"--rdzv-backend", "--rdzv-endpoint", "--token-file"});
    for (const FlagTable::Given& given : flags.given()) {
        if (!decided.contains(given.flag)) {
            options.run_flags.push_back(given.word);
        }
    }
    Result<RunFlags> checked = check_run(options, rest);
    if (!checked) {
        return checked.error();
    }
    options.run = *std::move(checked);
    options.run.rendezvous.endpoint = run.rendezvous.endpoint;
    options.run.trust = run.trust;
    options.gives_nodes = flags.was_set("--nnodes");
    options.gives_workers = flags.was_set("--nproc-per-node");
    options.gives_endpoint = flags.was_set("--rdzv-endpoint");
    return Parsed(std::move(options));
}

Result<std::vector<HostEntry>> read_hosts(const LaunchOptions& options) {
    const auto named = [](Result<std::vector<HostEntry>> hosts, const std::string& flag) {
        return hosts ? std::move(hosts)
                     : Failure(Errc::invalid_argument, flag + ": " + hosts.error().detail);
    };
    if (options.host_file.empty()) {
        return named(parse_host_list(options.hosts), "--hosts");
    }
    errno = 0;
    std::ifstream stream(options.host_file, std::ios::binary);
    std::string text(kHostFileBytesMax + 1, '\0');
    if (!stream ||
        !(stream.read(text.data(), static_cast<std::streamsize>(text.size())) || stream.eof())) {
        return system_failure("--hostfile: cannot read " + options.host_file, errno);
    }
    text.resize(static_cast<std::size_t>(stream.gcount()));
    return named(parse_host_file(text, options.host_file), "--hostfile");
}

Result<void> check_node_count(const LaunchOptions& options, std::size_t hosts) {
    const rendezvous::JobPolicy& run = options.run.agent.core.policy;
    if (!options.gives_nodes) {
        return {};
    }
    if (run.nodes_min > hosts && !options.gives_endpoint) {
        return Failure(Errc::invalid_argument, "--nnodes asks for " +
                                                   std::to_string(run.nodes_min) +
                                                   " nodes at least, and the list has " +
                                                   std::to_string(hosts) + " host(s)");
    }
    if (std::size_t{run.nodes_max} + run.standbys_max < hosts) {
        return Failure(Errc::invalid_argument,
                       "--nnodes and --standbys have work for " +
                           std::to_string(run.nodes_max + run.standbys_max) +
                           " nodes at most, and the list has " + std::to_string(hosts) +
                           " hosts; give fewer hosts, or --standbys for those that wait");
    }
    return {};
}

Result<std::vector<std::string>> split_command(const std::string& text) {
    wordexp_t expanded{};
    const int error = ::wordexp(text.c_str(), &expanded, WRDE_NOCMD);
    const std::unique_ptr<wordexp_t, void (*)(wordexp_t*)> owner(&expanded, &::wordfree);
    if (error != 0 || expanded.we_wordc == 0) {
        return Failure(
            Errc::invalid_argument,
            "--ssh must be a program and its flags, such as 'ssh -p 2222', not '" + text + "'");
    }
    return std::vector<std::string>(expanded.we_wordv, expanded.we_wordv + expanded.we_wordc);
}

}  // namespace regroup::launcher::ssh
