// SPDX-License-Identifier: Apache-2.0
//
// The commands of the program, besides those of run_command.h. Each gets the words behind its name.
#pragma once

#include <span>
#include <string>

#include "launcher/command.h"

namespace regroup::launcher {

/// Send a wish to a daemon. A signal that ends the wait for a drain ends the process.
Ending drain_command(std::span<const std::string> arguments);
Ending release_command(std::span<const std::string> arguments);
Ending stop_command(std::span<const std::string> arguments);
Ending status_command(std::span<const std::string> arguments);

/// Show the events of a job, the output of a rank, and the trace of a job.
Ending events_command(std::span<const std::string> arguments);
Ending logs_command(std::span<const std::string> arguments);
Ending trace_command(std::span<const std::string> arguments);

/// Says why a round hangs, from what its agents have saved.
Ending explain_command(std::span<const std::string> arguments);
/// Runs the journal of a job through the same state machine again.
Ending replay_command(std::span<const std::string> arguments);
/// Checks this node now, and prints what was found.
Ending health_command(std::span<const std::string> arguments);
/// Makes the token of a user or a site, and narrower ones from it.
Ending token_command(std::span<const std::string> arguments);
/// The daemon alone, until SIGTERM or SIGINT.
Ending serve_command(std::span<const std::string> arguments);
/// Writes a batch script for a job of `regroup run`, and gives it to sbatch, which takes the place
/// of this process.
Ending submit_command(std::span<const std::string> arguments);

namespace top {
/// Follows the jobs of a daemon until a key or a signal ends it.
Ending top_command(std::span<const std::string> arguments);
}  // namespace top

namespace ssh {
/// Runs a job on several hosts, from the command line to its end.
Ending launch_command(std::span<const std::string> arguments);
/// A node of a job that `regroup launch-ssh` has started over ssh on this host. Takes its orders
/// from stdin, and runs as `regroup run` does. See messages.h.
Ending node_command(std::span<const std::string> arguments);
}  // namespace ssh

}  // namespace regroup::launcher
