// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "agent/core/agent_core.h"
#include "agent/health/node_check.h"
#include "launcher/run_options.h"

namespace regroup::launcher {

/// The checks that --health asks for on this node. `folder`: of the output of the workers; empty:
/// none.
[[nodiscard]] health::CheckOptions health_checks(const RunOptions& options,
                                                 const agent::AgentConfig& agent,
                                                 const std::filesystem::path& folder);

}  // namespace regroup::launcher
