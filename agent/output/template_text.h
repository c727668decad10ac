// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace regroup::agent {

/// `text` with `$name` and `${name}` replaced by their values and `$$` by a dollar sign. Unknown
/// names, and anything else after a dollar sign, stay. This is Python's
/// string.Template.safe_substitute, which torchrun uses for arguments and prefixes.
[[nodiscard]] std::string substitute(const std::string& text,
                                     const std::map<std::string, std::string>& values);

/// `text` with `${name}` replaced by its value for the names in `values`. All else stays, including
/// `$$`, because it may be for a shell.
[[nodiscard]] std::string substitute_braced(const std::string& text,
                                            const std::map<std::string, std::string>& values);

}  // namespace regroup::agent
