// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "launcher/run_command.h"

namespace regroup::launcher::ssh {

/// `regroup ssh-node`: a node of a job that `regroup launch-ssh` has started over ssh on this host.
/// Takes its orders from stdin, and runs as `regroup run` does. See messages.h.
Ending node_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher::ssh
