// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/agent_core.h"
#include "agent/workers/event_record.h"
#include "launcher/run_plan.h"

namespace regroup::launcher {

/// An event of a worker in the format of torchrun's console handler: one JSON object, without line
/// end.
[[nodiscard]] std::string event_line(const agent::WorkerEvent& event,
                                     const RunPlan::ConsoleEvents& names,
                                     const agent::AgentConfig& config);

/// The same event for the event log: one JSON object in the style of rendezvous::event_line,
/// without line end. docs/events.md lists the fields. `wall_ms`: since 1970.
[[nodiscard]] std::string agent_event_line(const agent::WorkerEvent& event,
                                           const agent::AgentConfig& config,
                                           const std::string& host, std::int64_t wall_ms);

}  // namespace regroup::launcher
