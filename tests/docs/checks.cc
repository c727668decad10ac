// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/checks.h"

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "tests/docs/commands.h"
#include "tests/docs/shell.h"
#include "tests/support/program.h"

namespace regroup::docs {
namespace {

namespace fs = std::filesystem;
using regroup::testing::Program;
using regroup::testing::TemporaryDirectory;

constexpr std::size_t kProgramsAtOnce = 2;
// The headers of libtorch take a minute where none of them is in memory yet. The test's own time
// limit is shorter.
constexpr std::chrono::minutes kLongestCheck(10);

void write_file(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

/// A command for the shell, and the beginning of the finding if it fails.
struct Check {
    std::string place;
    std::string command;
};

/// Runs the commands, several at once. Returns a finding with the output for each that fails.
Findings run(const std::vector<Check>& checks) {
    Findings findings;
    std::deque<std::pair<const Check*, std::unique_ptr<Program>>> running;
    const auto reap = [&] {
        const auto& [check, program] = running.front();
        const auto code = program->wait(kLongestCheck);
        if (code != 0) {
            findings.push_back(check->place + (code ? "" : "no end: ") + program->output());
        }
        running.pop_front();
    };
    for (const Check& check : checks) {
        if (running.size() == kProgramsAtOnce) {
            reap();
        }
        running.emplace_back(&check, std::make_unique<Program>(regroup::testing::ProgramSpec{
                                         {"/bin/sh", "-c", check.command}, {}, ""}));
    }
    while (!running.empty()) {
        reap();
    }
    return findings;
}

/// The file with the code of one program, or of fragments.
class Sources {
   public:
    std::string add(const std::string& text, const std::string& extension) {
        const std::string path = folder_.path() + "/" + std::to_string(++count_) + extension;
        write_file(path, text);
        return path;
    }
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }

   private:
    TemporaryDirectory folder_;
    int count_ = 0;
};

bool is_program(const Block& block) {
    return std::regex_search(block.text, std::regex("\\bint main\\("));
}

bool needs_torch(const Block& block) {
    return block.text.find("torch::nn") != std::string::npos ||
           block.text.find("<regroup/torch.h>") != std::string::npos;
}

/// The code with the name and the line of its page.
std::string located(const Block& block) {
    return "#line " + std::to_string(block.line) + " \"" + block.page + "\"\n" + block.text;
}

/// A fragment as a function of its own, in the namespace whose names it may use.
std::string wrapped(const Block& block) {
    static int count = 0;
    const std::string name = "fragment" + std::to_string(++count);
    const bool callbacks = block.has("callbacks");
    return std::string("namespace ") + (block.page.ends_with(".h") ? "headers" : "pages") +
           " {\nvoid " + name + "();\nvoid " + name + "() {\n" +
           (callbacks ? "static_cast<void>(regroup::ElasticCallbacks{\n" : "{\n") + located(block) +
           "#line 1 \"the end of " + block.page + ":" + std::to_string(block.line) + "\"\n" +
           (callbacks ? "});" : "}") + "\n}\n}\n";
}

std::string includes() {
    const std::string root = REGROUP_SOURCE_DIR;
    return " -I" + root + "/worker_sdk/include -I" + root + "/rendezvous/base/include -I" + root +
           "/tests/docs -I" REGROUP_BINARY_DIR "/include ";
}

const std::string kCompileCxx =
    REGROUP_CXX " -std=c++20 -fsyntax-only -Wall -Wextra -Werror " REGROUP_TORCH_INCLUDES;
const std::string kCompileC = REGROUP_CC " -std=c99 -fsyntax-only -Wall -Wextra -Werror";

std::string script_of(const Block& block) {
    return block.language == "console" ? commands_of_console(block.text) : block.text;
}

Project read_this_project() {
    Program ctest(
        {{REGROUP_CTEST, "--test-dir", REGROUP_BINARY_DIR, "--show-only=json-v1"}, {}, ""});
    ctest.wait();
    return read_project(REGROUP_SOURCE_DIR, REGROUP_BINARY_DIR, ctest.output());
}

CommandChecker::Answer run_regroup(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {REGROUP_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Program program({command, {}, ""});
    const int code = program.wait().value_or(-1);
    return {code, program.output()};
}

/// Replaces the variables that earlier blocks of the same page assign, each on a line of its own.
class Variables {
   public:
    std::string expand(const Block& block, std::string script) {
        std::map<std::string, std::string>& values = values_[block.page];
        const std::regex assignment("(?:^|\n)([a-z_]+)=([A-Za-z0-9_./-]+)");
        for (std::sregex_iterator match(script.begin(), script.end(), assignment), end;
             match != end; ++match) {
            values[(*match)[1]] = (*match)[2];
        }
        for (const auto& [name, value] : values) {
            script = std::regex_replace(script, std::regex("\\$" + name + "\\b"), value);
        }
        return script;
    }

   private:
    std::map<std::string, std::map<std::string, std::string>> values_;
};

/// Runs a program of Python that reads the block from the file sys.argv[1].
Findings check_by_python(const std::vector<Block>& blocks, const std::string& program) {
    Sources sources;
    std::vector<Check> checks;
    for (const Block& block : blocks) {
        checks.push_back({block.where(), REGROUP_PYTHON " -c '" + program + "' " +
                                             sources.add(block.padded(), ".txt") + " " +
                                             block.page});
    }
    return run(checks);
}

const std::string kParsePython =
    "import sys; compile(open(sys.argv[1]).read(), sys.argv[2], \"exec\")";
const std::string kParseYaml = "import sys, yaml; list(yaml.safe_load_all(open(sys.argv[1])))";

bool python_can(const std::string& program) {
    return !std::string(REGROUP_PYTHON).empty() &&
           run({{"", REGROUP_PYTHON " -c '" + program + "'"}}).empty();
}

}  // namespace

Findings check_cpp(const std::vector<Block>& blocks) {
    Sources sources;
    std::vector<Check> checks;
    std::string fragments = "#include \"prelude.h\"\n";
    // <torch/torch.h> of release 1.13 is not C++20 for every compiler.
    std::string torch_fragments =
        "#include <regroup/torch.h>\n#include <torch/nn/functional/loss.h>\n"
        "#include <torch/nn/modules/linear.h>\n#include <torch/optim/sgd.h>\n" +
        fragments;
    bool any_torch = false;
    for (const Block& block : blocks) {
        const bool with_torch = needs_torch(block);
        if (with_torch && std::string(REGROUP_TORCH_INCLUDES).empty()) {
            std::cout << "no libtorch: not compiled: " << block.where() << "\n";
        } else if (is_program(block)) {
            checks.push_back({"", kCompileCxx + includes() + sources.add(located(block), ".cc")});
        } else {
            any_torch = any_torch || with_torch;
            (with_torch ? torch_fragments : fragments) += wrapped(block);
        }
    }
    // The results of a fragment have no user.
    const std::string compile_fragments = kCompileCxx + " -Wno-unused " + includes();
    checks.push_back({"", compile_fragments + sources.add(fragments, ".cc")});
    if (any_torch) {  // First, since it takes longest.
        checks.insert(checks.begin(),
                      {"", compile_fragments + sources.add(torch_fragments, ".cc")});
    }
    return run(checks);
}

Findings check_c(const std::vector<Block>& blocks) {
    Sources sources;
    std::vector<Check> checks;
    for (const Block& block : blocks) {
        const std::string code =
            is_program(block) ? located(block)
                              : "#include <regroup/c_api.h>\n#include <regroup/c_api_training.h>\n"
                                "void fragment(void);\nvoid fragment(void) {\n" +
                                    located(block) + "}\n";
        checks.push_back({"", kCompileC + includes() + sources.add(code, ".c")});
    }
    return run(checks);
}

Findings install(const std::string& prefix) {
    return run({{"cmake --install, after the SDK was built: ",
                 "for part in library development; do " REGROUP_CMAKE
                 " --install " REGROUP_BINARY_DIR " --component $part --prefix " +
                     prefix + " || exit 1; done"}});
}

Findings check_cmake(const std::vector<Block>& blocks, const std::string& prefix) {
    Sources sources;
    std::vector<Check> checks;
    for (const Block& block : blocks) {
        const fs::path project = sources.add("", ".d");
        fs::remove(project);
        fs::create_directories(project);
        fs::create_directory_symlink(REGROUP_SOURCE_DIR, project / "regroup");
        const bool is_whole = block.text.find("cmake_minimum_required") != std::string::npos;
        const std::string start = is_whole ? "" : "cmake_minimum_required(VERSION 3.25)\n";
        write_file(project / "CMakeLists.txt", start + block.text);
        const std::regex source("[a-z_]+\\.(cc|c)\\b");
        for (std::sregex_iterator match(block.text.begin(), block.text.end(), source), end;
             match != end; ++match) {
            write_file(project / match->str(), "int main(void) { return 0; }\n");
        }
        checks.push_back({block.where(), REGROUP_CMAKE " -G Ninja -S " + project.string() + " -B " +
                                             (project / "build").string() +
                                             " -DCMAKE_CXX_COMPILER=" REGROUP_CXX
                                             " -DCMAKE_C_COMPILER=" REGROUP_CC
                                             " -DCMAKE_PREFIX_PATH=" +
                                             prefix + " > /dev/null"});
    }
    return run(checks);
}

Findings check_syntax(const std::vector<Block>& blocks) {
    Sources sources;
    std::vector<Check> checks;
    for (const Block& block : blocks) {
        Block script = block;
        script.text = script_of(block);
        checks.push_back({block.where(), "bash -n " + sources.add(script.padded(), ".sh")});
    }
    return run(checks);
}

Findings check_commands(const std::vector<Block>& blocks) {
    static const Project project = read_this_project();
    const CommandChecker checker(project, run_regroup);
    Variables variables;
    Findings findings;
    for (const Block& block : blocks) {
        const std::string script = variables.expand(block, script_of(block));
        for (const Command& command : commands_of_script(script)) {
            const std::string wrong = checker.check(command.words, block.has("elsewhere"));
            if (!wrong.empty()) {
                findings.push_back(block.where(command.offset) + wrong);
            }
        }
    }
    return findings;
}

bool has_python() {
    return python_can("");
}

bool has_yaml() {
    return python_can("import yaml");
}

Findings check_python(const std::vector<Block>& blocks) {
    return check_by_python(blocks, kParsePython);
}

Findings check_yaml(const std::vector<Block>& blocks) {
    return check_by_python(blocks, kParseYaml);
}

Findings check_json(const std::vector<Block>& blocks) {
    const auto is_json = [](const std::string& text) { return nlohmann::json::accept(text); };
    Findings findings;
    for (const Block& block : blocks) {
        if (is_json(block.text)) {
            continue;
        }
        std::istringstream lines(block.text);
        std::size_t offset = 0;
        for (std::string line; std::getline(lines, line); ++offset) {
            if (!is_json(line)) {
                findings.push_back(block.where(offset) + "not JSON");
                break;
            }
        }
    }
    return findings;
}

Findings check_ini(const std::vector<Block>& blocks) {
    const std::regex good("\\s*|[#;].*|\\[[A-Za-z0-9_. -]+\\]|[A-Za-z0-9_.-]+\\s*=.*");
    Findings findings;
    for (const Block& block : blocks) {
        std::istringstream lines(block.text);
        std::size_t offset = 0;
        bool goes_on = false;
        for (std::string line; std::getline(lines, line); ++offset) {
            if (!goes_on && !std::regex_match(line, good)) {
                findings.push_back(block.where(offset) + "neither [section] nor name = value");
            }
            goes_on = line.ends_with('\\');
        }
    }
    return findings;
}

}  // namespace regroup::docs
