// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/docs/shell.h"

namespace regroup::docs {

/// The names that commands in the documentation may use, read from the source and build trees.
struct Project {
    /// A test of ctest with its labels.
    struct Test {
        std::string name;
        std::vector<std::string> labels;
    };

    [[nodiscard]] bool has_output(const std::string& path) const;

    std::filesystem::path root;
    std::set<std::string> make_targets;
    std::string makefile;
    /// Names of presets by the key of CMakePresets.json: "configurePresets", "buildPresets" etc.
    std::map<std::string, std::set<std::string>> presets;
    /// The outputs of ninja, read from the build folder: files and names of targets. Empty with
    /// another generator; the tests do not check outputs then.
    std::set<std::string> outputs;
    std::string cache;  ///< CMakeCache.txt.
    std::vector<Test> tests;
};

[[nodiscard]] Project read_project(const std::filesystem::path& root,
                                   const std::filesystem::path& build,
                                   const std::string& tests_json);

/// Checks commands against the project and against the real parsers of `regroup`.
class CommandChecker {
   public:
    /// Runs `regroup` with these arguments; returns what it printed, and its exit code.
    struct Answer {
        int code = 0;
        std::string output;
    };
    using Regroup = std::function<Answer(const std::vector<std::string>& arguments)>;

    CommandChecker(const Project& project, Regroup regroup)
        : project_(project), regroup_(std::move(regroup)) {}

    /// Returns the error in the command, or an empty string. `elsewhere`: the command runs in a
    /// folder that is not the root of this tree.
    [[nodiscard]] std::string check(const std::vector<std::string>& words, bool elsewhere) const;

   private:
    using Words = std::vector<std::string>;

    [[nodiscard]] std::string check_paths(const Words& words) const;
    [[nodiscard]] std::string check_regroup(const Words& words) const;
    [[nodiscard]] std::string check_run(const std::string& front, const Words& arguments) const;
    [[nodiscard]] std::string check_launch_ssh(const Words& arguments) const;
    [[nodiscard]] std::string check_make(const Words& words) const;
    [[nodiscard]] std::string check_cmake(const Words& words) const;
    [[nodiscard]] std::string check_ctest(const Words& words) const;
    [[nodiscard]] std::string check_preset(const std::string& kind, const Words& words) const;
    [[nodiscard]] std::string check_example(const std::string& name, const Words& words) const;

    const Project& project_;
    Regroup regroup_;
};

}  // namespace regroup::docs
