// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "launcher/run_command.h"

namespace regroup::launcher::ssh {

/// `regroup launch-ssh`: runs a job on several hosts, from the command line to its end.
Ending launch_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher::ssh
