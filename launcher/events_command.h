// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup events`, with the arguments after it. Returns the exit code.
int events_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
