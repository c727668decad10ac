// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "agent/health/node_check.h"
#include "agent/process/limit_signals.h"
#include "agent/process/system_calls.h"
#include "launcher/events_command.h"
#include "launcher/explain_command.h"
#include "launcher/health_command.h"
#include "launcher/logs_command.h"
#include "launcher/operate_command.h"
#include "launcher/replay_command.h"
#include "launcher/run_command.h"
#include "launcher/run_options.h"
#include "launcher/say.h"
#include "launcher/serve_command.h"
#include "launcher/ssh/launch_command.h"
#include "launcher/ssh/messages.h"
#include "launcher/ssh/node_command.h"
#include "launcher/submit_command.h"
#include "launcher/token_command.h"
#include "launcher/top/command.h"
#include "launcher/trace_command.h"
#include "rendezvous/base/exit_code.h"

namespace {

constexpr const char* kHelp =
    "regroup: an elastic launcher and rendezvous daemon for distributed training\n"
    "\n"
    "Usage: regroup COMMAND [...]\n"
    "\n"
    "  run      start a job's workers on this node (takes torchrun's flags)\n"
    "  launch   the same, for scripts that take --local-rank (torch.distributed.launch)\n"
    "  submit   submit a job to Slurm\n"
    "  launch-ssh  start a job on several hosts by ssh\n"
    "  serve    run the rendezvous daemon alone\n"
    "  status   show the jobs of a daemon once\n"
    "  top      follow the jobs of a daemon on the terminal\n"
    "  events   show what has happened to a job, and follow it\n"
    "  logs     show or follow the output of a rank, wherever it runs\n"
    "  trace    print a job as a trace for Perfetto\n"
    "  drain    let one node leave its job at the next step boundary\n"
    "  release  let a quarantined node take part again\n"
    "  stop     end a job on all its nodes\n"
    "  explain  say which ranks wait for which in a hang that was saved\n"
    "  replay   print the decisions of a daemon and their reasons, from its journal\n"
    "  health   check this node: GPUs, limits, space\n"
    "  token    make the token by which hosts trust each other\n"
    "  version  print the version\n"
    "\n"
    "regroup COMMAND --help explains the flags. For example:\n"
    "  regroup run --nproc-per-node=2 ./train --epochs 5\n"
    "\n"
    "Under the name torchrun (a link to this program) it works like `regroup run`, with the exit\n"
    "codes and the output of torchrun, for scripts that cannot be edited.\n";

using regroup::launcher::Front;

int unknown_command(const std::string& word) {
    const std::vector<std::string> commands{"run",     "launch",     "serve",  "status",  "top",
                                            "drain",   "stop",       "replay", "release", "token",
                                            "version", "events",     "trace",  "health",  "explain",
                                            "submit",  "launch-ssh", "logs"};
    const auto near = regroup::launcher::nearest(word, commands);
    regroup::launcher::complain("regroup", "unknown command '" + word + "'" +
                                               (near ? "; did you mean " + *near + "?" : "") +
                                               " (regroup --help lists them)");
    return regroup::kExitUsage;
}

int end_as(const regroup::launcher::Ending& ending) {
    if (ending.signal != 0) {
        std::fflush(nullptr);
        std::signal(ending.signal, SIG_DFL);
        std::raise(ending.signal);
    }
    return ending.exit_code;
}

int run(Front front, const std::vector<std::string>& arguments) {
    return end_as(regroup::launcher::run_command(front, arguments));
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
        return may_run() ? run(Front::torchrun, arguments) : regroup::kExitJobFailed;
    }
    const std::string command = arguments.empty() ? "--help" : arguments.front();
    const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1),
                                        arguments.end());
    if (command == "--help" || command == "-h" || command == "help") {
        std::fputs(kHelp, stdout);
        return 0;
    }
    if (command == "version" || command == "--version") {
        std::puts("regroup " REGROUP_VERSION);
        return 0;
    }
    if (!may_run()) {
        return regroup::kExitUnhealthy;
    }
    if (command == "token") {
        return regroup::launcher::token_command(rest);
    }
    if (command == "submit") {
        return regroup::launcher::submit_command(rest);
    }
    if (command == "health") {
        return regroup::launcher::health_command(rest);
    }
    if (command == regroup::health::kProbeWord) {
        return regroup::health::answer_probe(rest);
    }
    if (command == "serve") {
        return regroup::launcher::serve_command(rest);
    }
    if (command == "run" || command == "launch") {
        return run(command == "run" ? Front::run : Front::launch, rest);
    }
    if (command == "launch-ssh") {
        return end_as(regroup::launcher::ssh::launch_command(rest));
    }
    if (command == regroup::launcher::ssh::kNodeCommand) {
        return end_as(regroup::launcher::ssh::node_command(rest));
    }
    if (command == "top") {
        return regroup::launcher::top::top_command(rest);
    }
    if (command == "events") {
        return regroup::launcher::events_command(rest);
    }
    if (command == "logs") {
        return regroup::launcher::logs_command(rest);
    }
    if (command == "trace") {
        return regroup::launcher::trace_command(rest);
    }
    if (command == "explain") {
        return regroup::launcher::explain_command(rest);
    }
    if (command == "replay") {
        return regroup::launcher::replay_command(rest);
    }
    using Action = regroup::rendezvous::Operate::Action;
    for (const auto& [word, action] :
         {std::pair("drain", Action::drain), std::pair("release", Action::release),
          std::pair("stop", Action::stop), std::pair("status", Action::status)}) {
        if (command == word) {
            return regroup::launcher::operate_command(action, rest);
        }
    }
    return unknown_command(command);
}
