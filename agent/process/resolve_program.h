// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The absolute path of the program that a shell would start for `name`: `name` itself if it
/// contains a slash, else the first executable file of that name in `search_path` (the value of
/// PATH; an empty entry is the current folder).
///
/// Errors: invalid_argument, one line that says what to do: no such program, a folder, a file that
/// is not executable. Does not check whether the file is a valid program.
Result<std::string> resolve_program(const std::string& name, const std::string& search_path);

}  // namespace regroup::agent
