// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// `regroup drain`, `release`, `stop` and `status`: sends a command to a daemon. Returns the exit
/// code.
int operate_command(rendezvous::Operate::Action action, std::span<const std::string> arguments);

}  // namespace regroup::launcher
