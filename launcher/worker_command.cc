// SPDX-License-Identifier: Apache-2.0
#include "launcher/worker_command.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "agent/placement/gpu_shares.h"
#include "agent/placement/gpus.h"
#include "agent/placement/placement.h"
#include "agent/placement/topology.h"
#include "agent/process/resolve_program.h"
#include "launcher/flag_values.h"
#include "launcher/host.h"
#include "rendezvous/cgroup/cgroup.h"

extern char** environ;

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

std::string variable_or(const char* name, const char* fallback) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : fallback;
}

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

std::vector<std::string> python_words(const RunOptions& options) {
    const std::string usual = options.interpreter.empty() ? "python3" : options.interpreter;
    std::vector<std::string> words{variable_or("PYTHON_EXEC", usual.c_str()), "-u"};
    if (options.run_path) {
        words.insert(words.end(), {"-c", kRunPathHelper});
    } else if (options.module) {
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

std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

// Decides which GPUs each worker sees. Returns the number of GPUs of each worker; 1 without the
// flag.
Result<int> divide_gpus(const RunOptions& options, std::uint32_t workers,
                        agent::WorkerCommand& command, std::vector<std::string>& notes) {
    if (options.gpus_per_rank.empty()) {
        return 1;
    }
    agent::GpuShareRequest request;
    request.rank_count = workers;
    request.gpus_per_rank = parse_number<std::uint32_t>(options.gpus_per_rank).value_or(0);
    request.visible = variable("CUDA_VISIBLE_DEVICES");
    request.gpu_count = count_installed_gpus();
    Result<agent::GpuShares> shares = agent::share_gpus(request);
    if (!shares) {
        return shares.error();
    }
    for (std::size_t rank = 0; rank < workers && options.report_bindings; ++rank) {
        notes.push_back("local rank " + std::to_string(rank) +
                        ": CUDA_VISIBLE_DEVICES=" + shares->visible[rank]);
    }
    if (!shares->note.empty()) {
        notes.push_back(shares->note);
    }
    command.visible_devices = std::move(shares->visible);
    return static_cast<int>(shares->gpus_per_rank);
}

Result<agent::PlacementRequest> placement_request(const RunOptions& options, std::uint32_t workers,
                                                  int gpus_per_rank) {
    agent::PlacementRequest request;
    request.rank_count = static_cast<int>(workers);
    request.gpus_per_rank = gpus_per_rank;
    if (const auto quota = cgroup::cpu_quota()) {
        request.cpu_quota = quota->cpus;
    }
    if (!options.numa_binding.empty()) {
        const Result<agent::NumaBinding> binding = agent::parse_numa_binding(options.numa_binding);
        if (!binding) {
            return binding.error();
        }
        request.numa_binding = *binding;
    }
    if (!options.cpus_per_rank.empty()) {
        const Result<agent::CpusPerRank> cpus = agent::parse_cpus_per_rank(options.cpus_per_rank);
        if (!cpus) {
            return cpus.error();
        }
        request.cpus_per_rank = *cpus;
    }
    return request;
}

Result<void> place_workers(const RunOptions& options, std::uint32_t workers,
                           agent::WorkerCommand& command, std::vector<std::string>& notes) {
    const Result<int> gpus_per_rank = divide_gpus(options, workers, command, notes);
    if (!gpus_per_rank) {
        return gpus_per_rank.error();
    }
    if (options.numa_binding.empty() && options.cpus_per_rank.empty() && !options.report_bindings) {
        return {};
    }
    const Result<agent::PlacementRequest> request =
        placement_request(options, workers, *gpus_per_rank);
    if (!request) {
        return request.error();
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
    Result<agent::Placement> placement = agent::plan_placement(*request, *topology, *gpus);
    if (!placement) {
        return placement.error();
    }
    if (options.report_bindings) {
        std::istringstream lines(agent::binding_report(*placement));
        for (std::string line; std::getline(lines, line);) {
            notes.push_back(line);
        }
    } else {
        notes.insert(notes.end(), placement->notes.begin(), placement->notes.end());
    }
    // A number that the user has set stays.
    command.sets_threads = request->cpus_per_rank &&
                           agent::find_variable(command.environment, "OMP_NUM_THREADS") == nullptr;
    command.placements = std::move(placement->ranks);
    return {};
}

}  // namespace

bool runs_by_python(const RunOptions& options) {
    if (options.module || options.run_path) {
        return true;
    }
    if (options.no_python) {
        return false;
    }
    return options.front != Front::run || options.program.ends_with(".py");
}

Result<agent::WorkerCommand> make_worker_command(const RunOptions& options, std::uint32_t workers,
                                                 std::vector<std::string>& notes) {
    agent::WorkerCommand command;
    if (runs_by_python(options)) {
        command.arguments = python_words(options);
        if (!options.module && !may_be_script(options.program)) {
            return Failure(Errc::invalid_argument,
                           "program '" + options.program + "' does not exist" +
                               (options.program.ends_with(".py")
                                    ? ""
                                    : " (a program that is not Python needs --no-python here)") +
                               hint_about_program(options.program));
        }
    }
    command.templates_begin = command.arguments.size();
    command.templates_of_torchrun = options.front == Front::torchrun;
    command.arguments.push_back(options.program);
    if (options.front == Front::launch && !options.use_env) {
        command.arguments.emplace_back("--local-rank=${local_rank}");
    }
    command.arguments.insert(command.arguments.end(), options.arguments.begin(),
                             options.arguments.end());
    Result<std::string> executable =
        agent::resolve_program(command.arguments.front(), variable_or("PATH", kDefaultPath));
    if (!executable) {
        return Failure(executable.error().code,
                       executable.error().detail +
                           (runs_by_python(options) ? "" : hint_about_program(options.program)));
    }
    command.executable = std::move(*executable);
    for (char** entry = environ; *entry != nullptr; ++entry) {
        command.environment.emplace_back(*entry);
    }
    if (!options.preload.empty()) {
        if (const auto program = find_python_program(command.arguments)) {
            command.preload = options.preload;
            command.python_program_begin = *program;
        } else {
            notes.emplace_back(
                "--preload has no effect: the command of the workers is not that of "
                "a Python interpreter with a program");
        }
    }
    command.signals_to_handle = options.signal_names;
    command.virtual_local_rank = options.virtual_local_rank;
    const bool one_each = options.virtual_local_rank && options.gpus_per_rank.empty();
    for (std::uint32_t i = 0; one_each && i < workers; ++i) {
        if (const auto device = agent::visible_device(command.environment, i); !device) {
            return device.error();
        }
    }
    if (const Result<void> placed = place_workers(options, workers, command, notes); !placed) {
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
