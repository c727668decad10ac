// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/core/agent_core.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// The last thing that a failed job says: who failed first, where, how, its last lines, and what
/// became of the restarts. Several lines, the last with a newline.
[[nodiscard]] std::string failure_report(const std::string& job,
                                         const rendezvous::Verdict& verdict);

/// One line for any other ending; empty for success, of which nothing needs to be said.
[[nodiscard]] std::string ending_line(const std::string& job, const agent::Quit& quit);

/// "3 recoveries took 41 ms; 99.9 % of 35 s went into training", "2 recoveries and 1 planned
/// change, 2 of them cut short, took ..."; empty for a job that lost nothing.
[[nodiscard]] std::string goodput_line(const rendezvous::Goodput& goodput);

}  // namespace regroup::launcher
