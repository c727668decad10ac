// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_text.h"

namespace regroup::tidy {

/// Everything that one file breaks, each as "path:line: what; what instead".
[[nodiscard]] std::vector<std::string> check_file(const SourceFile& file);

/// What only the whole tree shows: sources that are in no target, links that lead nowhere.
/// `compile_commands` is the text of CMake's compile database.
[[nodiscard]] std::vector<std::string> check_tree(const std::vector<SourceFile>& files,
                                                  const std::string& compile_commands);

/// What is worth a second look but breaks no rule: long files, long functions.
[[nodiscard]] std::vector<std::string> note_outliers(const SourceFile& file);

}  // namespace regroup::tidy
