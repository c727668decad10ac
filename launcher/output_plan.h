// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/output_layout.h"
#include "launcher/run_options.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// How this node's output is kept, with its folder made.
struct OutputPlan {
    agent::OutputOptions options;
    /// A folder of ours that holds nothing anybody asked for; to be removed after a success.
    std::filesystem::path temporary;
};

/// From the flags, for the job `job`. Only a folder that was asked for must work: without the
/// default one, output is only shown, and `notes` says so. Errors: invalid_argument, with the
/// folder and the kernel's reason.
Result<OutputPlan> make_output_plan(const RunOptions& options, const std::string& job,
                                    std::vector<std::string>& notes);

}  // namespace regroup::launcher
