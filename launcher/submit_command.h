// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

/// `regroup submit`: writes a batch script for a job of `regroup run`, and gives it to sbatch,
/// which takes the place of this process. Returns the exit code if there is nothing to submit.
int submit_command(const std::vector<std::string>& arguments);

}  // namespace regroup::launcher
