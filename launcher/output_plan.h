// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/output/output_layout.h"
#include "launcher/run_flags.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// The output options of this node. The folder exists.
struct OutputPlan {
    agent::OutputOptions options;
    /// A temporary folder that the user has not asked for. Remove it after a success, and if
    /// nobody is left to report what is in it. Empty: there is none.
    std::filesystem::path temporary;
};

/// Makes the plan from the flags. If the default folder cannot be used, the output is only shown,
/// and `notes` gets a notice. Errors: invalid_argument, with the folder and the reason of the
/// system, if a folder that the user gave cannot be used.
Result<OutputPlan> make_output_plan(const RunFlags& flags, const std::string& job,
                                    std::vector<std::string>& notes);

/// Removes OutputPlan::temporary, if it is not empty, with all that is in it.
void remove_temporary(const std::filesystem::path& folder) noexcept;

}  // namespace regroup::launcher
