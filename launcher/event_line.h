// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/core/agent_core.h"
#include "agent/event_record.h"
#include "launcher/run_options.h"

namespace regroup::launcher {

/// A worker's event as torchrun's console handler writes it: one JSON object, without line end.
[[nodiscard]] std::string event_line(const agent::WorkerEvent& event, const RunOptions& options,
                                     const agent::AgentConfig& config);

}  // namespace regroup::launcher
