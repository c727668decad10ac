// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

/// A script for `shell` (bash, zsh or tcsh) that completes the flags of `command` and file names.
[[nodiscard]] std::string completion(const std::string& command,
                                     const std::vector<std::string>& flags,
                                     const std::string& shell);

}  // namespace regroup::launcher
