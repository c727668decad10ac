// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup serve`: the rendezvous daemon alone, until SIGTERM or SIGINT. Returns the exit code.
int serve_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
