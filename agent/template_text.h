// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace regroup::agent {

/// `text` with `$name` and `${name}` replaced by their values and `$$` by a dollar sign; names that
/// `values` lacks, and anything else after a dollar sign, stay as they are. The rule is that of
/// Python's string.Template.safe_substitute, by which torchrun fills in arguments and prefixes.
[[nodiscard]] std::string substitute(const std::string& text,
                                     const std::map<std::string, std::string>& values);

/// `text` with `${name}` replaced by its value for the names in `values`. All else stays as it is,
/// `$$` included, because it may be meant for a shell.
[[nodiscard]] std::string substitute_braced(const std::string& text,
                                            const std::map<std::string, std::string>& values);

}  // namespace regroup::agent
