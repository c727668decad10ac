// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/source_text.h"

namespace regroup::tidy {

/// All violations of one file, each as "path:line: problem; remedy".
[[nodiscard]] std::vector<std::string> check_file(const SourceFile& file);

/// Violations of the whole tree: sources in no target, dead links. `compiled` is any text that has
/// the path of each compiled source in quotation marks.
[[nodiscard]] std::vector<std::string> check_tree(const std::vector<SourceFile>& files,
                                                  const std::string& compiled);

/// Notes that are no violations: long files and long functions.
[[nodiscard]] std::vector<std::string> note_outliers(const SourceFile& file);

}  // namespace regroup::tidy
