// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "launcher/flag_table.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

using Words = std::vector<std::string>;

/// How the process must end.
struct CommandEnd {
    int exit_code = 0;
    int signal = 0;  ///< If not 0, the process ends by this signal, so that the parent sees it.
    bool by_verdict = false;  ///< The job has ended, and all its nodes end so.
    /// Lines that are the same on all nodes of the job, if another process prints them.
    std::vector<std::string> report = {};
};

/// Reads the flags of a command, and calls `act` with the words that are no flags. Prints the help
/// if it is asked for. A mistake in the flags, or an error of `act`, ends the command as
/// usage_error() does.
CommandEnd run_with(FlagTable& flags, std::span<const std::string> arguments,
                    const std::function<Result<CommandEnd>(const Words& words)>& act);

/// The ending after a line on stderr about the command line.
CommandEnd usage_error(const std::string& command, const std::string& line);

/// For commands that take no words. `hint` follows the complaint.
Result<void> expect_no_words(const Words& words, const std::string& hint = "");

}  // namespace regroup::launcher
