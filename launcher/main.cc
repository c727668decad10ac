// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/agent_core.h"
#include "launcher/run_command.h"
#include "launcher/run_options.h"
#include "launcher/serve_command.h"

namespace {

constexpr const char* kHelp =
    "regroup: an elastic launcher and rendezvous daemon for distributed training\n"
    "\n"
    "Usage: regroup COMMAND [...]\n"
    "\n"
    "  run      start a job's workers on this node (takes torchrun's flags)\n"
    "  serve    run the rendezvous daemon alone\n"
    "  version  print the version\n"
    "\n"
    "regroup COMMAND --help tells more. For example:\n"
    "  regroup run --nproc-per-node=2 ./train --epochs 5\n";

int unknown_command(const std::string& word) {
    const std::vector<std::string> commands{"run", "serve", "version"};
    const auto near = regroup::launcher::nearest(word, commands);
    std::fprintf(stderr, "regroup: unknown command '%s'%s (regroup --help lists them)\n",
                 word.c_str(), near ? ("; did you mean " + *near + "?").c_str() : "");
    return regroup::agent::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
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
    if (command == "serve") {
        return regroup::launcher::serve_command(rest);
    }
    if (command != "run") {
        return unknown_command(command);
    }
    const regroup::launcher::Ending ending = regroup::launcher::run_command(rest);
    if (ending.signal != 0) {
        std::fflush(nullptr);
        std::signal(ending.signal, SIG_DFL);
        std::raise(ending.signal);
    }
    return ending.exit_code;
}
