// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The absolute path of `program`: itself if it contains a slash, else the first executable of that
/// name in `path_list` (as $PATH). Errors: invalid_argument, saying whether it does not exist, is a
/// folder or is not executable, and what to try.
Result<std::string> resolve_program(const std::string& program, const std::string& path_list);

}  // namespace regroup::agent
