// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher::ssh {

/// The variables that `regroup launch-ssh` passes on to its hosts: those in `own` that configure
/// communication, GPUs, threads, Python and regroup, and those that `exports` names, as
/// "NAME=VALUE" or as "NAME" with its value in `own`. All are "NAME=VALUE"; the last of a name
/// wins. Variables by which regroup itself hands secrets to a process stay here unless they are
/// exported.
/// Errors: invalid_argument, the rest of a sentence that begins with the flag.
[[nodiscard]] Result<std::vector<std::string>> environment_for_hosts(
    const std::vector<std::string>& own, const std::vector<std::string>& exports);

}  // namespace regroup::launcher::ssh
