// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup logs`: shows the output of a rank, wherever it runs. Returns the exit code.
int logs_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
