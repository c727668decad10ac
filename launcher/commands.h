// SPDX-License-Identifier: Apache-2.0
//
// The commands of the program, besides those of run_command.h. Each gets the words behind its name.
#pragma once

#include <span>
#include <string>

#include "launcher/command.h"

namespace regroup::launcher {

/// Send a wish to a daemon. A signal that ends the wait for a drain ends the process.
CommandEnd drain_command(std::span<const std::string> arguments);
CommandEnd release_command(std::span<const std::string> arguments);
CommandEnd stop_command(std::span<const std::string> arguments);
CommandEnd status_command(std::span<const std::string> arguments);

/// Show the events of a job, the output of a rank, and the trace of a job.
CommandEnd events_command(std::span<const std::string> arguments);
CommandEnd logs_command(std::span<const std::string> arguments);
CommandEnd trace_command(std::span<const std::string> arguments);

/// Says why a round hangs, from what its agents have saved.
CommandEnd explain_command(std::span<const std::string> arguments);
/// Runs the journal of a job through the same state machine again.
CommandEnd replay_command(std::span<const std::string> arguments);
/// Checks this node now, and prints what was found.
CommandEnd health_command(std::span<const std::string> arguments);
/// Makes the token of a user or a site, and narrower ones from it.
CommandEnd token_command(std::span<const std::string> arguments);
/// Prints the version, and what this program speaks.
CommandEnd version_command(std::span<const std::string> arguments);
/// The daemon alone, until SIGTERM or SIGINT.
CommandEnd serve_command(std::span<const std::string> arguments);
/// Writes a batch script for a job of `regroup run`, and gives it to sbatch, which takes the place
/// of this process.
CommandEnd submit_command(std::span<const std::string> arguments);

namespace top {
/// Follows the jobs of a daemon until a key or a signal ends it.
CommandEnd top_command(std::span<const std::string> arguments);
}  // namespace top

namespace ssh {
/// Runs a job on several hosts, from the command line to its end.
CommandEnd launch_command(std::span<const std::string> arguments);
/// A node of a job that `regroup launch-ssh` has started over ssh on this host. Takes its orders
/// from stdin, and runs as `regroup run` does. See messages.h.
CommandEnd node_command(std::span<const std::string> arguments);
}  // namespace ssh

}  // namespace regroup::launcher
