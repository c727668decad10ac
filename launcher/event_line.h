// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/core/agent_core.h"
#include "agent/event_record.h"
#include "launcher/run_options.h"

namespace regroup::launcher {

/// An event of a worker in the format of torchrun's console handler: one JSON object, without line
/// end.
[[nodiscard]] std::string event_line(const agent::WorkerEvent& event, const RunOptions& options,
                                     const agent::AgentConfig& config);

}  // namespace regroup::launcher
