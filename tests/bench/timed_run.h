// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regroup::bench {

/// The time of one run of a command.
struct TimedRun {
    double wall_ms = 0;
    double cpu_ms = 0;  ///< Of the command and all children that it has waited for.
    bool success = false;
};

/// Runs `command`, whose first element is a path, in `directory`, with /dev/null as stdin and
/// output, and waits for it.
[[nodiscard]] TimedRun run_timed(const std::vector<std::string>& command,
                                 const std::string& directory);

/// Starts `count` processes of the program at `path` with posix_spawn, then waits for all. This is
/// the lower bound for starting workers.
[[nodiscard]] TimedRun run_bare_loop(const std::string& path, int count);

/// The program's path, found as a shell would find it.
[[nodiscard]] std::optional<std::string> find_program(const std::string& name);

}  // namespace regroup::bench
