// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

/// `regroup health`: checks this node now, and prints what was found. Returns the exit code.
int health_command(const std::vector<std::string>& arguments);

}  // namespace regroup::launcher
