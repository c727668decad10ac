// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup replay`: runs the journal of a job through the same state machine again.
/// Returns the exit code.
int replay_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
