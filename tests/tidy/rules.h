// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_text.h"

namespace regroup::tidy {

/// All violations of one file, each as "path:line: problem; remedy".
[[nodiscard]] std::vector<std::string> check_file(const SourceFile& file);

/// Violations of the whole tree: sources in no target, dead links. `compile_commands` is the text
/// of CMake's compile database.
[[nodiscard]] std::vector<std::string> check_tree(const std::vector<SourceFile>& files,
                                                  const std::string& compile_commands);

/// Notes that are no violations: long files, long functions.
[[nodiscard]] std::vector<std::string> note_outliers(const SourceFile& file);

}  // namespace regroup::tidy
