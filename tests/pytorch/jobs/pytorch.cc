// SPDX-License-Identifier: Apache-2.0
#include "tests/pytorch/jobs/pytorch.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>

namespace regroup::testing {

namespace {

struct Candidate {
    const char* name;
    const char* path;
    const char* remedy;
};

constexpr std::array<Candidate, 3> kCandidates{{
    {"Debian", REGROUP_PYTORCH_DEBIAN, "apt-get install python3-torch"},
    {"Current", REGROUP_PYTORCH_CURRENT, "sh tests/pytorch/setup.sh"},
    {"Newest", REGROUP_PYTORCH_NEWEST, "sh tests/pytorch/setup.sh newest"},
}};

// Looks for the module without importing it, which would take a second.
bool has_torch(const std::string& python) {
    const std::string question =
        "import sys; from importlib.util import find_spec; "
        "sys.exit(not (find_spec('torch') and find_spec('numpy')))";
    const std::string command = "'" + python + "' -c \"" + question + "\" </dev/null >&2";
    return std::filesystem::exists(python) && std::system(command.c_str()) == 0;
}

Words python_environment() {
    return {
        // Python writes no files beside the scripts.
        "PYTHONDONTWRITEBYTECODE=1",
        // The choice of a network interface is not tested here.
        "GLOO_SOCKET_IFNAME=lo",
    };
}

}  // namespace

const std::vector<Interpreter>& interpreters() {
    static const std::vector<Interpreter> found = [] {
        std::vector<Interpreter> result;
        for (const Candidate& candidate : kCandidates) {
            if (has_torch(candidate.path)) {
                result.push_back({candidate.name, candidate.path, {}});
            } else {
                std::cout << "no PyTorch at " << candidate.path
                          << ", its tests are left out; get it by: " << candidate.remedy
                          << std::endl;
            }
        }
        return result;
    }();
    return found;
}

std::vector<Interpreter> interpreters_and_preloaded() {
    std::vector<Interpreter> result;
    for (const Interpreter& interpreter : interpreters()) {
        result.push_back(interpreter);
        result.push_back({interpreter.name + "Preloaded", interpreter.path, {"--preload=torch"}});
    }
    return result;
}

const Interpreter* find_interpreter(const std::string& name) {
    for (const Interpreter& interpreter : interpreters()) {
        if (interpreter.name == name) {
            return &interpreter;
        }
    }
    return nullptr;
}

std::string script(const std::string& name) {
    return std::string(PYTORCH_SCRIPTS) + "/" + name;
}

std::map<std::uint32_t, Words> worker_lines(const Program& program) {
    static const std::regex kLine("\\[[^\\] ]*:(\\d+)\\] (.*)");
    std::map<std::uint32_t, Words> result;
    for (const std::string& line : lines_of(program.output())) {
        std::smatch match;
        if (std::regex_match(line, match, kLine)) {
            result[static_cast<std::uint32_t>(std::stoul(match[1]))].push_back(match[2]);
        }
    }
    return result;
}

std::size_t count_of(const Program& program, const std::string& text) {
    const std::string output = program.output();
    std::size_t count = 0;
    for (std::size_t at = output.find(text); at != output.npos; at = output.find(text, at + 1)) {
        ++count;
    }
    return count;
}

ProgramSpec PyTorch::job(const Interpreter& python, const Words& flags, const std::string& name,
                         const Words& arguments) const {
    return {
        Words{regroup_program(), "run"} + python.flags + flags + Words{script(name)} + arguments,
        python_environment() + Words{"PYTHON_EXEC=" + python.path}, folder()};
}

ProgramSpec PyTorch::by_hand(const Interpreter& python, const std::string& name,
                             const Words& arguments, const Words& environment) const {
    return {Words{python.path, script(name)} + arguments, python_environment() + environment,
            folder()};
}

std::string name_of(const ::testing::TestParamInfo<Interpreter>& info) {
    return info.param.name;
}

}  // namespace regroup::testing
