// SPDX-License-Identifier: Apache-2.0
#include "launcher/worker_command.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "agent/placement/gpu_shares.h"
#include "agent/placement/gpus.h"
#include "agent/placement/placement.h"
#include "agent/placement/topology.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/resolve_program.h"
#include "launcher/host.h"
#include "launcher/nccl_plugin.h"
#include "rendezvous/cgroup/cgroup.h"

namespace regroup::launcher {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// --run-path: runs the script in this interpreter, and writes an exception to the error file as
// PyTorch's `record` decorator does: not a SystemExit. The pause lets threads of libraries drop
// their Python objects. A thread of Gloo that does so later, while the interpreter ends, aborts the
// process.
constexpr const char* kRunPathHelper = R"(
import json, os, runpy, sys, time, traceback
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as error:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with open(path, "w") as file:
            json.dump({"message": {"message": f"{type(error).__name__}: {error}",
                                   "extraInfo": {"py_callstack": traceback.format_exc(),
                                                 "timestamp": str(int(time.time()))}}}, file)
    raise
finally:
    if len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.1)
)";

// Python also accepts folders, devices and "-". A name with a dollar sign is a template.
bool may_be_script(const std::string& path) {
    std::error_code error;
    return path == "-" || path.find('$') != path.npos || fs::exists(path, error);
}

// How a word that is no program usually comes to stand in the place of the program, as the rest of
// a sentence about it. Empty: nothing is known.
std::string hint_about_program(const std::string& word) {
    const bool is_number = word.find_first_not_of("0123456789:.,") == word.npos;
    static const std::set<std::string> kAnswers{"true", "false", "True", "False", "yes", "no"};
    const bool other_dash = word.starts_with("\xE2\x80") || word.starts_with("\xE2\x88\x92");
    const std::size_t equals = word.find('=');
    const bool sets_variable =
        equals != word.npos && equals > 0 && equals < word.find('/') && word.front() != '-';
    const std::string hint =
        other_dash ? "it begins with a character that only looks like '-'"
        : is_number || kAnswers.contains(word)
            ? "if it is meant as the value of a flag: a switch such as --standalone takes none, "
              "and another flag has its value already"
        : word.front() == '-' ? "flags of the launcher stand before a --"
        : word.find(' ') != word.npos
            ? "it has a blank: write the program and its arguments as separate words, without "
              "quotes around all of them"
        : sets_variable ? "to set a variable of the workers, write env before it"
                        : "";
    return hint.empty() ? "" : "; the first word that is no flag is the program, and " + hint;
}

// As PyTorch's torchrun: if the program is installed in a virtual environment, the Python of that
// environment.
std::string python_of_torchrun() {
    const Result<std::string> found =
        agent::resolve_program(program_invocation_name, variable("PATH").value_or(""));
    if (!found) {
        return "python3";
    }
    const fs::path folder = fs::path(*found).parent_path();
    std::error_code error;
    const bool is_environment = fs::exists(folder.parent_path() / "pyvenv.cfg", error);
    return is_environment && fs::exists(folder / "python3", error) ? (folder / "python3").string()
                                                                   : "python3";
}

std::vector<std::string> python_words(const RunFlags& flags) {
    const auto given = variable("PYTHON_EXEC");
    std::vector<std::string> words{given                            ? *given
                                   : flags.front == Front::torchrun ? python_of_torchrun()
                                                                    : "python3",
                                   "-u"};
    if (flags.program.run_path) {
        words.insert(words.end(), {"-c", kRunPathHelper});
    } else if (flags.program.module) {
        words.push_back("-m");
    }
    return words;
}

/// Brings `-mMODULE` and the like into the form of two words, and returns the index of the program
/// after the interpreter's options: of -m, -c or the script. Nothing if the command is not that of
/// a Python interpreter with a program.
std::optional<std::size_t> find_python_program(std::vector<std::string>& arguments) {
    const std::string name = fs::path(arguments.front()).filename();
    if (!name.starts_with("python")) {
        return std::nullopt;
    }
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        const std::string word = arguments[i];
        if (word.size() < 2 || word.front() != '-') {
            return word == "-" || word.empty() ? std::nullopt : std::optional(i);
        }
        const std::size_t at = word.find_first_of("mcWXhiVx?-", 1);
        if (at == word.npos) {
            continue;
        }
        const bool joined = at + 1 < word.size();
        if (word[at] == 'm' || word[at] == 'c') {
            if (joined) {
                arguments[i] = word.substr(at + 1);
            } else {
                arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
            }
            if (at > 1) {
                arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i++),
                                 word.substr(0, at));
            }
            arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                             std::string{'-', word[at]});
            return i + 1 < arguments.size() ? std::optional(i) : std::nullopt;
        }
        if (word[at] != 'W' && word[at] != 'X') {
            return std::nullopt;  // It runs no program, asks for a person, or cuts the script.
        }
        i += joined ? 0 : 1;
    }
    return std::nullopt;
}

// Decides which GPUs each worker sees. Returns the number of GPUs of each worker; 1 without the
// flag.
Result<int> divide_gpus(const PlacementFlags& flags, std::uint32_t workers,
                        agent::WorkerCommand& command, std::vector<std::string>& notes) {
    if (!flags.gpus_per_rank) {
        return 1;
    }
    agent::GpuShareRequest request;
    request.rank_count = workers;
    request.gpus_per_rank = *flags.gpus_per_rank;
    request.visible = variable("CUDA_VISIBLE_DEVICES");
    request.gpu_count = count_installed_gpus();
    Result<agent::GpuShares> shares = agent::share_gpus(request);
    if (!shares) {
        return shares.error();
    }
    for (std::size_t rank = 0; rank < workers && flags.report_bindings; ++rank) {
        notes.push_back("local rank " + std::to_string(rank) +
                        ": CUDA_VISIBLE_DEVICES=" + shares->visible[rank]);
    }
    if (!shares->note.empty()) {
        notes.push_back(shares->note);
    }
    command.visible_devices = std::move(shares->visible);
    return static_cast<int>(shares->gpus_per_rank);
}

Result<void> place_workers(const PlacementFlags& flags, std::uint32_t workers,
                           agent::WorkerCommand& command, std::vector<std::string>& notes) {
    const Result<int> gpus_per_rank = divide_gpus(flags, workers, command, notes);
    if (!gpus_per_rank) {
        return gpus_per_rank.error();
    }
    agent::PlacementRequest request = flags.request;
    if (request.numa_binding == agent::NumaBinding::none && !request.cpus_per_rank &&
        !flags.report_bindings) {
        return {};
    }
    request.rank_count = static_cast<int>(workers);
    request.gpus_per_rank = *gpus_per_rank;
    if (const auto quota = cgroup::cpu_quota()) {
        request.cpu_quota = quota->cpus;
    }
    const Result<agent::Topology> topology = agent::Topology::load();
    if (!topology) {
        return topology.error();
    }
    const Result<agent::Gpus> gpus =
        agent::find_gpus({.root = "/",
                          .visible = variable("CUDA_VISIBLE_DEVICES"),
                          .device_order = variable("CUDA_DEVICE_ORDER")});
    if (!gpus) {
        return gpus.error();
    }
    Result<agent::Placement> placement = agent::plan_placement(request, *topology, *gpus);
    if (!placement) {
        return placement.error();
    }
    if (flags.report_bindings) {
        std::istringstream lines(agent::binding_report(*placement));
        for (std::string line; std::getline(lines, line);) {
            notes.push_back(line);
        }
    } else {
        notes.insert(notes.end(), placement->notes.begin(), placement->notes.end());
    }
    // A number that the user has set stays.
    command.sets_threads = request.cpus_per_rank &&
                           agent::find_variable(command.environment, "OMP_NUM_THREADS") == nullptr;
    command.placements = std::move(placement->ranks);
    return {};
}

}  // namespace

bool runs_by_python(const RunFlags& flags) {
    const ProgramFlags& program = flags.program;
    return program.module || program.run_path ||
           (!program.no_python && (flags.front != Front::run || program.program.ends_with(".py")));
}

Result<agent::WorkerCommand> make_worker_command(const RunFlags& flags, std::uint32_t workers,
                                                 std::vector<std::string>& notes) {
    agent::WorkerCommand command = flags.agent.group.command;
    const std::string& program = flags.program.program;
    if (runs_by_python(flags)) {
        command.arguments = python_words(flags);
        if (!flags.program.module && !may_be_script(program)) {
            return invalid_argument(
                "program '" + program + "' does not exist" +
                (program.ends_with(".py")
                     ? ""
                     : " (a program that is not Python needs --no-python here)") +
                hint_about_program(program));
        }
    }
    command.templates_begin = command.arguments.size();
    command.templates_of_torchrun = flags.front == Front::torchrun;
    command.arguments.push_back(program);
    if (flags.front == Front::launch && !flags.program.use_env) {
        command.arguments.emplace_back("--local-rank=${local_rank}");
    }
    command.arguments.insert(command.arguments.end(), flags.program.arguments.begin(),
                             flags.program.arguments.end());
    Result<std::string> executable =
        agent::resolve_program(command.arguments.front(), variable("PATH").value_or(kDefaultPath));
    if (!executable) {
        return Failure(
            executable.error().code,
            executable.error().detail + (runs_by_python(flags) ? "" : hint_about_program(program)));
    }
    command.executable = std::move(*executable);
    command.environment = agent::own_environment();
    add_nccl_plugin(find_nccl_plugin(own_folder()), command.environment, notes);
    std::vector<std::string> words = command.arguments;
    command.python_program_begin = find_python_program(words);
    if (command.python_program_begin) {
        command.arguments = std::move(words);
    } else if (!command.preload.empty()) {
        command.preload.clear();
        notes.emplace_back(
            "--preload has no effect: the command of the workers is not that of "
            "a Python interpreter with a program");
    }
    const bool one_each = command.virtual_local_rank && !flags.placement.gpus_per_rank;
    for (std::uint32_t i = 0; one_each && i < workers; ++i) {
        if (const auto device = agent::visible_device(command.environment, i); !device) {
            return device.error();
        }
    }
    if (const Result<void> placed = place_workers(flags.placement, workers, command, notes);
        !placed) {
        return placed.error();
    }
    if (workers > 1 && !command.sets_threads &&
        agent::find_variable(command.environment, "OMP_NUM_THREADS") == nullptr) {
        command.environment.emplace_back("OMP_NUM_THREADS=1");
        notes.push_back("OMP_NUM_THREADS is not set; each of this node's " +
                        std::to_string(workers) +
                        " workers gets 1, so that they do not crowd each other (set it, or give "
                        "--cpus-per-rank=auto)");
    }
    return command;
}

}  // namespace regroup::launcher
