// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/commands.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "launcher/run_flags.h"
#include "launcher/ssh/options.h"

namespace regroup::docs {
namespace {

namespace fs = std::filesystem;

/// Commands of others, of which only the syntax is checked.
const std::set<std::string>& foreign_commands() {
    static const std::set<std::string> names = {
        "[",        "apt",    "apt-get", "c++",   "cat",  "cc",        "cd",     "chmod",
        "command",  "chrt",   "cp",      "curl",  "do",   "dpkg",      "echo",   "etcdctl",
        "export",   "for",    "g++",     "git",   "gcc",  "jq",        "kill",   "ln",
        "openssl",  "umask",  "ls",      "mkdir", "mv",   "pgrep",     "pip",    "pwd",
        "ps",       "python", "rm",      "seq",   "set",  "systemctl", "tail",   "test",
        "trap",     "true",   "unset",   "wait",  "head", "sleep",     "sbatch", "journalctl",
        "scontrol", "tar"};
    return names;
}

/// Commands that run another command, which is searched among their words.
const std::set<std::string>& wrappers() {
    static const std::set<std::string> names = {
        "docker",  "env", "exec",   "kubectl", "mpiexec", "mpirun",  "nohup", "numactl", "perf",
        "python3", "ssh", "setsid", "srun",    "sudo",    "taskset", "time",  "timeout"};
    return names;
}

std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool is_launcher(const std::string& word) {
    return base_name(word) == "regroup" || base_name(word) == "torchrun";
}

/// The value of a flag: "--name VALUE", "--name=VALUE".
std::optional<std::string> value_of(const std::vector<std::string>& words,
                                    const std::string& flag) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == flag && i + 1 < words.size()) {
            return words[i + 1];
        }
        if (words[i].starts_with(flag + "=")) {
            return words[i].substr(flag.size() + 1);
        }
    }
    return std::nullopt;
}

std::vector<std::string> behind(const std::vector<std::string>& words, std::size_t count) {
    return {words.begin() + static_cast<std::ptrdiff_t>(std::min(count, words.size())),
            words.end()};
}

/// The outputs of all rules of a build.ninja: "build OUTPUT... | OUTPUT...: RULE ...".
std::set<std::string> outputs_of(const fs::path& build_ninja) {
    std::set<std::string> outputs;
    std::ifstream stream(build_ninja);
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with("build ")) {
            continue;
        }
        std::istringstream names(line.substr(6, line.find(": ") - 6));
        for (std::string name; names >> name;) {
            outputs.insert(name);
        }
    }
    return outputs;
}

}  // namespace

bool Project::has_output(const std::string& path) const {
    if (outputs.empty() || outputs.contains(path)) {
        return true;
    }
    const auto below = outputs.lower_bound(path + "/");
    return below != outputs.end() && below->starts_with(path + "/");
}

Project read_project(const fs::path& root, const fs::path& build, const std::string& tests_json) {
    using nlohmann::json;
    Project project;
    project.root = root;
    project.makefile = read(root / "Makefile");
    const std::regex rule("(^|\n)([a-z][a-z -]*):[^=]");
    for (std::sregex_iterator match(project.makefile.begin(), project.makefile.end(), rule), end;
         match != end; ++match) {
        std::istringstream names((*match)[2].str());
        for (std::string name; names >> name;) {
            project.make_targets.insert(name);
        }
    }
    const json presets = json::parse(read(root / "CMakePresets.json"));
    for (const auto& [kind, list] : presets.items()) {
        if (!kind.ends_with("Presets")) {
            continue;
        }
        for (const json& preset : list) {
            if (!preset.value("hidden", false)) {
                project.presets[kind].insert(preset.at("name").get<std::string>());
            }
        }
    }
    project.outputs = outputs_of(build / "build.ninja");
    project.cache = read(build / "CMakeCache.txt");
    const json tests = json::parse(tests_json, nullptr, /*allow_exceptions=*/false);
    if (!tests.is_discarded()) {
        for (const json& test : tests.at("tests")) {
            project.tests.push_back({test.at("name"), {}});
            for (const json& property : test.at("properties")) {
                if (property.at("name") == "LABELS") {
                    project.tests.back().labels = property.at("value");
                }
            }
        }
    }
    return project;
}

std::string CommandChecker::check(const Words& words, bool elsewhere) const {
    const std::string& first = words.front();
    const std::string name = base_name(first);
    if (std::string wrong = elsewhere ? "" : check_paths(words); !wrong.empty()) {
        return wrong;
    }
    if (is_launcher(first)) {
        return check_regroup(words);
    }
    if (wrappers().contains(first)) {
        const auto inner = std::find_if(words.begin() + 1, words.end(), is_launcher);
        return inner == words.end() ? "" : check_regroup({inner, words.end()});
    }
    if (name == "pkg-config") {
        for (const std::string& word : words) {
            if (word.starts_with("regroup") &&
                !fs::exists(project_.root / "cmake" / (word + ".pc.in"))) {
                return "no package of pkg-config is called " + word;
            }
        }
        return "";
    }
    if (foreign_commands().contains(first) || elsewhere) {
        return "";
    }
    if (name == "make") {
        return check_make(words);
    }
    if (name == "cmake") {
        return check_cmake(words);
    }
    if (name == "ctest") {
        return check_ctest(words);
    }
    if (name == "cpack") {
        return check_preset("packagePresets", words);
    }
    if (fs::is_directory(project_.root / "examples" / name)) {
        return check_example(name, words);
    }
    if (name == "sh" || name == "bash" || first.find('/') != first.npos || first == "...") {
        return "";  // Its path was checked.
    }
    return "no check knows the command '" + first + "'; see tests/docs/commands.cc";
}

/// Words that name a file of the source tree or of a build tree.
std::string CommandChecker::check_paths(const Words& words) const {
    static const std::regex built("(?:\\./)?build/([a-z]+)(?:/(.*))?");
    static const std::regex source("(?:\\./)?([A-Za-z_]+)/[A-Za-z0-9_./-]+");
    for (const std::string& word : words) {
        std::smatch match;
        if (std::regex_match(word, match, built)) {
            const std::string preset = match[1];
            const std::string path = match[2];
            if (preset == "pytorch" || preset == "wheel") {
                continue;  // Of `make test-pytorch` and `make wheel`, which use no preset.
            }
            if (!project_.presets.at("configurePresets").contains(preset)) {
                return "no preset builds in " + word;
            }
            const bool is_example =
                path.starts_with("examples/") &&
                fs::is_directory(project_.root /
                                 fs::path(path).parent_path());  // Some need what may be missing.
            if (!path.empty() && !is_example && !project_.has_output(path)) {
                return "no target builds " + word;
            }
        } else if (std::regex_match(word, match, source) && match[1] != "build" &&
                   fs::is_directory(project_.root / match[1].str()) &&
                   !fs::exists(project_.root / word)) {
            return "there is no " + word;
        }
    }
    return "";
}

std::string CommandChecker::check_regroup(const Words& words) const {
    if (base_name(words.front()) == "torchrun") {
        return check_run("torchrun", behind(words, 1));
    }
    const std::string command = words.size() > 1 ? words[1] : "";
    if (command == "run" || command == "launch") {
        return check_run(command, behind(words, 2));
    }
    if (command == "launch-ssh") {
        return check_launch_ssh(behind(words, 2));
    }
    // The last value of a flag wins. With these no daemon is asked and none begins to serve, and
    // the answer differs from the one to a mistake on the command line.
    Words arguments = behind(words, 1);
    std::string harmless;
    if (command == "serve") {
        // No address of any machine.
        arguments.insert(arguments.end(), {"--listen=192.0.2.1:1", "--insecure"});
        harmless = "cannot listen";
    } else if (command == "drain" || command == "release" || command == "stop" ||
               command == "status" || command == "top" || command == "events" ||
               command == "logs" || command == "trace") {
        arguments.insert(arguments.end(), {"--endpoint=127.0.0.1:1", "--timeout=0.01"});
        harmless = "no daemon has answered";
    } else if (command == "token") {
        arguments.emplace_back("--token-file=/proc/none/token");
        harmless = "/proc/none/token";
    } else if (command == "submit") {
        arguments.insert(arguments.begin() + std::min<std::ptrdiff_t>(2, std::ssize(arguments)),
                         "--dry-run");
    } else if (command == "replay") {
        harmless = "cannot open";
    } else if (command == "explain") {
        harmless = "there is no such file or folder";
    }
    const Answer answer = regroup_(arguments);
    const bool good = answer.code == 0 ||
                      (!harmless.empty() && answer.output.find(harmless) != std::string::npos);
    return good ? "" : answer.output.substr(0, answer.output.find('\n'));
}

std::string CommandChecker::check_run(const std::string& front, const Words& arguments) const {
    using launcher::Front;
    const auto parsed = launcher::parse_run_flags(front == "torchrun" ? Front::torchrun
                                                  : front == "launch" ? Front::launch
                                                                      : Front::run,
                                                  arguments);
    if (!parsed) {
        return front + ": " + parsed.error().detail;
    }
    const auto* const options = std::get_if<launcher::RunFlags>(&*parsed);
    if (options == nullptr) {
        return "";
    }
    const std::string name = base_name(options->program.program);
    return fs::is_directory(project_.root / "examples" / name)
               ? check_example(name, options->program.arguments)
               : "";
}

std::string CommandChecker::check_launch_ssh(const Words& arguments) const {
    const auto parsed = launcher::ssh::parse_launch_options(arguments);
    const auto* const options =
        parsed ? std::get_if<launcher::ssh::LaunchOptions>(&*parsed) : nullptr;
    if (options == nullptr) {
        return parsed ? "" : "launch-ssh: " + parsed.error().detail;
    }
    const auto hosts = launcher::parse_host_list(options->hosts);
    if (!options->hosts.empty() && !hosts) {
        return "launch-ssh: " + hosts.error().detail;
    }
    const std::string name = base_name(options->run.program.program);
    return fs::is_directory(project_.root / "examples" / name)
               ? check_example(name, options->run.program.arguments)
               : "";
}

std::string CommandChecker::check_make(const Words& words) const {
    for (const std::string& word : behind(words, 1)) {
        const std::size_t equals = word.find('=');
        if (equals != word.npos) {
            const std::string variable = "$(" + word.substr(0, equals) + ")";
            if (project_.makefile.find(variable) == std::string::npos) {
                return "the Makefile does not use " + variable;
            }
        } else if (!word.starts_with('-') && !project_.make_targets.contains(word)) {
            return "the Makefile has no target " + word;
        }
    }
    return "";
}

std::string CommandChecker::check_cmake(const Words& words) const {
    const auto has = [&](const char* flag) {
        return std::ranges::find(words, flag) != words.end();
    };
    const std::string kind = has("--build")      ? "buildPresets"
                             : has("--workflow") ? "workflowPresets"
                                                 : "configurePresets";
    bool is_target = false;
    for (const std::string& word : words) {
        static const std::regex definition("-D(REGROUP_[A-Z_]+)=.*");
        std::smatch match;
        if (std::regex_match(word, match, definition) &&
            project_.cache.find("\n" + match[1].str() + ":") == std::string::npos) {
            return "there is no option " + match[1].str();
        }
        if (is_target && !word.starts_with('-') && !project_.has_output(word)) {
            return "there is no target " + word;
        }
        is_target = word == "--target" || (is_target && !word.starts_with('-'));
    }
    return check_preset(kind, words);
}

std::string CommandChecker::check_ctest(const Words& words) const {
    for (const std::string& flag : {std::string("-L"), std::string("-R")}) {
        const std::optional<std::string> pattern = value_of(words, flag);
        if (!pattern || project_.tests.empty()) {
            continue;
        }
        if (flag == "-L" && fs::is_directory(project_.root / "tests" / *pattern)) {
            continue;  // The label of a folder, whose tests may need what is not installed.
        }
        const std::regex regex(*pattern);
        const bool selects = std::ranges::any_of(project_.tests, [&](const Project::Test& test) {
            return flag == "-R" ? std::regex_search(test.name, regex)
                                : std::ranges::any_of(test.labels, [&](const std::string& label) {
                                      return std::regex_search(label, regex);
                                  });
        });
        if (!selects) {
            return "ctest " + flag + " " + *pattern + " selects no test";
        }
    }
    return check_preset("testPresets", words);
}

std::string CommandChecker::check_preset(const std::string& kind, const Words& words) const {
    const std::optional<std::string> name = value_of(words, "--preset");
    if (name && !project_.presets.at(kind).contains(*name)) {
        return "CMakePresets.json has no " + *name + " among its " + kind;
    }
    return "";
}

/// The flags of an example must occur in its sources, or in those that the examples share.
std::string CommandChecker::check_example(const std::string& name, const Words& words) const {
    std::string sources;
    for (const std::string& folder : {name, std::string("common")}) {
        for (const auto& entry : fs::directory_iterator(project_.root / "examples" / folder)) {
            if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") {
                sources += read(entry.path());
            }
        }
    }
    for (const std::string& word : words) {
        const std::string flag = word.substr(0, word.find('='));
        if (flag.starts_with("--") && sources.find('"' + flag + '"') == std::string::npos) {
            return "the example " + name + " has no flag " + flag;
        }
    }
    return "";
}

}  // namespace regroup::docs
