// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// What `regroup run` was asked for, as given: one field for each flag. Nothing is looked up or
/// decided here; that is run_plan's part.
struct RunOptions {
    // Job.
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    std::string workers = "1";  ///< A number, cpu, gpu or auto.
    std::string role = "default";
    std::uint32_t max_restarts = 0;

    // Rendezvous.
    bool standalone = false;
    std::string rdzv_backend = "static";
    std::string rdzv_endpoint;
    std::string rdzv_id;  ///< Empty: torchrun's "none", or a fresh one for a standalone job.
    std::optional<std::uint32_t> node_rank;
    std::string master_addr;
    std::optional<std::uint16_t> master_port;
    std::string local_addr;

    // Time.
    Duration join_timeout = std::chrono::minutes(10);
    Duration last_call = std::chrono::seconds(3);
    Duration heartbeat_timeout = std::chrono::seconds(3);
    Duration shutdown_timeout = std::chrono::seconds(30);
    Duration grow_after = std::chrono::seconds(5);
    double monitor_interval = 0.1;  ///< Accepted; supervision is by event.

    // Output.
    std::optional<std::string> log_dir;

    // Program.
    bool module = false;
    bool no_python = false;
    std::string program;
    std::vector<std::string> arguments;
};

/// What the command line asked for instead of a run.
struct ShowText {
    std::string text;
};

/// Parses the arguments after `regroup run`. Flags have dash and underscore forms and read
/// PET_<NAME> as their default. Errors: invalid_argument, one line that names the flag or variable
/// and, for an unknown flag, the nearest known one.
Result<std::variant<RunOptions, ShowText>> parse_run_options(
    std::span<const std::string> arguments);

/// The candidate that `word` was probably meant to be, if any is near enough.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word,
                                                 std::span<const std::string> candidates);

}  // namespace regroup::launcher
