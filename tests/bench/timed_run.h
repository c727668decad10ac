// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regroup::bench {

/// What one run of a command took.
struct TimedRun {
    double wall_ms = 0;
    double cpu_ms = 0;  ///< Of the command and of all that it has waited for.
    bool success = false;
};

/// Runs `command`, whose first element is a path, in `directory`, and waits for it. It reads and
/// writes /dev/null.
[[nodiscard]] TimedRun run_timed(const std::vector<std::string>& command,
                                 const std::string& directory);

/// Starts `count` processes of the program at `path` with posix_spawn, then waits for all: what
/// starting workers costs at the very least.
[[nodiscard]] TimedRun run_bare_loop(const std::string& path, int count);

/// The program's path, found as a shell would find it.
[[nodiscard]] std::optional<std::string> find_program(const std::string& name);

}  // namespace regroup::bench
