// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup explain`: says why a round hangs, from what its agents have saved. Returns the exit
/// code.
int explain_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
