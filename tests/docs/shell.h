// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace regroup::docs {

/// One simple command of a shell script, without redirections, keywords and assignments.
struct Command {
    std::size_t offset = 0;          ///< Lines of the script before the one where it begins.
    std::vector<std::string> words;  ///< Without quotes; variables are not expanded.
};

/// The simple commands of a script, also those in `$(...)` and in scripts that it writes by a here
/// document. Understands as much of the language as documentation needs; `bash -n` checks the rest.
[[nodiscard]] std::vector<Command> commands_of_script(const std::string& script);

}  // namespace regroup::docs
