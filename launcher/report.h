// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// "job nightly". A job without --rdzv-id is "job none (no --rdzv-id)".
[[nodiscard]] std::string job_text(const std::string& job);

/// The last report of a failed job: the verdict and the first failure, with its last lines of
/// output.
[[nodiscard]] std::vector<std::string> failure_report(const std::string& job,
                                                      const rendezvous::Verdict& verdict);

/// One line for any other ending. Empty for success.
[[nodiscard]] std::string ending_line(const std::string& job, const agent::Quit& quit);

}  // namespace regroup::launcher
