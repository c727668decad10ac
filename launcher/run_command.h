// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "launcher/run_options.h"

namespace regroup::launcher {

/// How the process must end.
struct Ending {
    int exit_code = 0;
    int signal = 0;  ///< If not 0, the process ends by this signal, so that the parent sees it.
};

/// `regroup run`, `regroup launch` or torchrun: runs this node's part of a job, from the command
/// line to the verdict.
Ending run_command(Front front, std::span<const std::string> arguments);

}  // namespace regroup::launcher
