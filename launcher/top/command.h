// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher::top {

/// `regroup top`: follows the jobs of a daemon until a key or a signal ends it. `arguments`: the
/// words after "top". Returns the exit code; a signal ends the process.
int top_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher::top
