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
/// is not executable, a script whose interpreter does not exist. Does not check whether another
/// file is a valid program.
Result<std::string> resolve_program(const std::string& name, const std::string& search_path);

/// Why the kernel cannot execute the file at `path` though it is there, as the rest of a sentence
/// about it: its first line names an interpreter that does not exist, perhaps because its lines end
/// with CR LF, or it needs a loader that does not exist.
[[nodiscard]] std::string missing_interpreter(const std::string& path);

}  // namespace regroup::agent
