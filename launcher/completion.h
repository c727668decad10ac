// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

/// Commands for `shell` (bash, zsh or tcsh), to be evaluated by it, that complete the flags of
/// `command` and, after them, file names.
[[nodiscard]] std::string completion(const std::string& command,
                                     const std::vector<std::string>& flags,
                                     const std::string& shell);

}  // namespace regroup::launcher
