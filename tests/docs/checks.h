// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/docs/blocks.h"

namespace regroup::docs {

/// Sentences about what is wrong, each with the page and the line.
using Findings = std::vector<std::string>;

/// Compiles programs as they are. Compiles all fragments together, behind prelude.h. Blocks that
/// need libtorch are left out, with a note, where libtorch is missing.
[[nodiscard]] Findings check_cpp(const std::vector<Block>& blocks);
[[nodiscard]] Findings check_c(const std::vector<Block>& blocks);

/// Installs the SDK of this build below `prefix`. The SDK must have been built.
[[nodiscard]] Findings install(const std::string& prefix);
/// Configures each block as a project, with the SDK installed below `prefix`, and with the sources
/// of this tree in its folder "regroup".
[[nodiscard]] Findings check_cmake(const std::vector<Block>& blocks, const std::string& prefix);

/// Checks the syntax of `sh` and `console` blocks with bash.
[[nodiscard]] Findings check_syntax(const std::vector<Block>& blocks);
/// Checks the commands of `sh` and `console` blocks. See CommandChecker.
[[nodiscard]] Findings check_commands(const std::vector<Block>& blocks);

[[nodiscard]] bool has_python();
[[nodiscard]] bool has_yaml();  ///< PyYAML.
[[nodiscard]] Findings check_python(const std::vector<Block>& blocks);
[[nodiscard]] Findings check_yaml(const std::vector<Block>& blocks);

/// A block is one value, or one value for each line.
[[nodiscard]] Findings check_json(const std::vector<Block>& blocks);
[[nodiscard]] Findings check_ini(const std::vector<Block>& blocks);

}  // namespace regroup::docs
