// SPDX-License-Identifier: Apache-2.0
// Runs an example as its README says: under the real launcher, by hand, or alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace regroup::testing {

using Words = std::vector<std::string>;

inline std::string example_program(const std::string& name) {
    return std::string(EXAMPLES_FOLDER) + "/" + name + "/" + name;
}

/// `name` is that of a program, or of a program and its command.
inline Words example_command(const std::string& name, const Words& arguments) {
    const std::size_t space = name.find(' ');
    Words command{example_program(name.substr(0, space))};
    if (space != std::string::npos) {
        command.push_back(name.substr(space + 1));
    }
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

/// The result of an example.
struct Outcome {
    int exit_code = -1;
    std::string output;                                 ///< All of it.
    std::map<std::uint32_t, Words> lines_of_rank = {};  ///< Under the launcher.

    /// The line of `rank` that begins with `start`, without it; fails the test if there is none.
    [[nodiscard]] std::string after(std::uint32_t rank, const std::string& start) const {
        const auto lines = lines_of_rank.find(rank);
        for (const std::string& line : lines == lines_of_rank.end() ? Words() : lines->second) {
            if (line.starts_with(start)) {
                return line.substr(start.size());
            }
        }
        ADD_FAILURE() << "rank " << rank << " printed no line '" << start << "...' in:\n" << output;
        return "";
    }
    [[nodiscard]] double number_after(std::uint32_t rank, const std::string& start) const {
        return std::atof(after(rank, start).c_str());
    }
};

class Examples : public ::testing::Test {
   protected:
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }

    /// The launcher with `rank_count` ranks of an example, all in folder().
    [[nodiscard]] Program start(std::uint32_t rank_count, const std::string& name,
                                const Words& arguments = {}, const Words& launcher = {}) const {
        Words command{REGROUP_PROGRAM, "run", "--standalone",
                      "--nproc-per-node=" + std::to_string(rank_count)};
        command.insert(command.end(), launcher.begin(), launcher.end());
        const Words example = example_command(name, arguments);
        command.insert(command.end(), example.begin(), example.end());
        return Program({command, {}, folder()});
    }

    /// The same to its end.
    [[nodiscard]] Outcome launch(std::uint32_t rank_count, const std::string& name,
                                 const Words& arguments = {}, const Words& launcher = {}) const {
        Program program = start(rank_count, name, arguments, launcher);
        Outcome outcome{.exit_code = program.wait().value_or(-1), .output = program.output()};
        const std::regex prefixed("\\[.*:([0-9]+)\\] (.*)");
        for (const std::string& line : lines_of(outcome.output)) {
            std::smatch match;
            if (std::regex_match(line, match, prefixed)) {
                outcome.lines_of_rank[static_cast<std::uint32_t>(std::stoul(match[1]))].push_back(
                    match[2]);
            }
        }
        return outcome;
    }

    /// A single process, without a launcher.
    [[nodiscard]] Outcome run_alone(const std::string& name, const Words& arguments = {},
                                    const Words& environment = {}) const {
        Program program({example_command(name, arguments), environment, folder()});
        Outcome outcome{.exit_code = program.wait().value_or(-1), .output = program.output()};
        outcome.lines_of_rank[0] = lines_of(outcome.output);
        return outcome;
    }

   private:
    TemporaryDirectory folder_;
};

}  // namespace regroup::testing
