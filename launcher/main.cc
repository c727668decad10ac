// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "agent/health/gpu_holders.h"
#include "agent/health/node_check.h"
#include "agent/process/own_limits.h"
#include "agent/process/system_calls.h"
#include "launcher/commands.h"
#include "launcher/run_command.h"
#include "launcher/say.h"
#include "launcher/ssh/messages.h"
#include "rendezvous/base/exit_code.h"

namespace {

using regroup::launcher::CommandEnd;
using regroup::launcher::Front;
using Arguments = std::span<const std::string>;

struct Command {
    std::string name;
    std::string help;  ///< Empty for those that people do not call.
    CommandEnd (*run)(Arguments arguments);
};

/// In the order of the help.
const std::vector<Command>& commands() {
    namespace launcher = regroup::launcher;
    static const std::vector<Command> all = {
        {"run", "start a job's workers on this node (takes torchrun's flags)",
         [](Arguments words) { return launcher::run_command(Front::run, words); }},
        {"launch", "the same, for scripts that take --local-rank (torch.distributed.launch)",
         [](Arguments words) { return launcher::run_command(Front::launch, words); }},
        {"submit", "submit a job to Slurm", launcher::submit_command},
        {"launch-ssh", "start a job on several hosts by ssh", launcher::ssh::launch_command},
        {"serve", "run the daemon alone", launcher::serve_command},
        {"status", "show the jobs of a daemon once", launcher::status_command},
        {"top", "follow the jobs of a daemon on the terminal", launcher::top::top_command},
        {"events", "show what has happened to a job, and follow it", launcher::events_command},
        {"logs", "show or follow the output of a rank, wherever it runs", launcher::logs_command},
        {"trace", "print a job as a trace for Perfetto", launcher::trace_command},
        {"drain", "let one node leave its job at the next step boundary", launcher::drain_command},
        {"release", "let a quarantined node take part again", launcher::release_command},
        {"stop", "end a job on all its nodes", launcher::stop_command},
        {"explain", "explain a saved hang: which rank waits for which", launcher::explain_command},
        {"replay", "print the decisions of a daemon and their reasons, from its journal",
         launcher::replay_command},
        {"health", "check this node: GPUs, limits, space", launcher::health_command},
        {"token", "make the token by which hosts trust each other", launcher::token_command},
        {"version", "print the version, and what it speaks", launcher::version_command},
        {regroup::health::kProbeWord, "",
         [](Arguments words) {
             return CommandEnd{regroup::health::answer_probe({words.begin(), words.end()})};
         }},
        {regroup::health::kHoldersWord, "",
         [](Arguments words) {
             return CommandEnd{regroup::health::answer_holders({words.begin(), words.end()})};
         }},
        {launcher::ssh::kNodeCommand, "", launcher::ssh::node_command},
    };
    return all;
}

void print_help() {
    std::fputs(
        "regroup: an elastic launcher and rendezvous daemon for distributed training\n"
        "\n"
        "Usage: regroup COMMAND [...]\n"
        "\n",
        stdout);
    for (const Command& command : commands()) {
        if (!command.help.empty()) {
            std::printf("  %-10s  %s\n", command.name.c_str(), command.help.c_str());
        }
    }
    std::fputs(
        "\n"
        "regroup COMMAND --help explains the flags. For example:\n"
        "  regroup run --nproc-per-node=2 ./train --epochs 5\n"
        "\n"
        "Under the name torchrun (a link to this program) it works like `regroup run`, with the "
        "exit\n"
        "codes and the output of torchrun, for scripts that cannot be edited.\n",
        stdout);
}

CommandEnd unknown_command(const std::string& word) {
    std::vector<std::string> names;
    for (const Command& command : commands()) {
        if (!command.help.empty()) {
            names.push_back(command.name);
        }
    }
    const auto near = regroup::launcher::nearest(word, names);
    return regroup::launcher::usage_error("regroup",
                                          "unknown command '" + word + "'" +
                                              (near ? "; did you mean " + *near + "?" : "") +
                                              " (regroup --help lists them)");
}

int end_as(const CommandEnd& ending) {
    if (ending.signal != 0) {
        std::fflush(nullptr);
        std::signal(ending.signal, SIG_DFL);
        std::raise(ending.signal);
    }
    return ending.exit_code;
}

bool is_called(const char* path, const std::string& name) {
    const std::string text = path;
    return text.substr(text.rfind('/') + 1) == name;  // Without a slash, npos + 1 is 0.
}

// False, with a line, where a sandbox refuses what nothing here can do without.
bool may_run() {
    const std::string call = regroup::agent::missing_call();
    if (!call.empty()) {
        regroup::launcher::complain(
            "regroup", "a sandbox refuses the system call " + call +
                           ", without which regroup cannot run; allow it in the seccomp profile of "
                           "the container");
    }
    return call.empty();
}

}  // namespace

int main(int argc, char** argv) {
    regroup::agent::outlive_limits();
    const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    if (argc > 0 && is_called(argv[0], "torchrun")) {
        return may_run() ? end_as(regroup::launcher::run_command(Front::torchrun, arguments))
                         : regroup::kExitJobFailed;
    }
    const std::string word = arguments.empty() ? "--help" : arguments.front();
    if (word == "--help" || word == "-h" || word == "help") {
        print_help();
        return 0;
    }
    if (word == "--version") {
        std::puts("regroup " REGROUP_VERSION);
        return 0;
    }
    if (!may_run()) {
        return regroup::kExitUnhealthy;
    }
    const auto command = std::ranges::find(commands(), word, &Command::name);
    return end_as(command == commands().end() ? unknown_command(word)
                                              : command->run(Arguments(arguments).subspan(1)));
}
