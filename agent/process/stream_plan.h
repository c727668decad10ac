// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regroup::agent {

/// The destinations of one output stream of one worker.
struct StreamPlan {
    enum class Way : std::uint8_t {
        relayed,    ///< Through the agent, by the other fields.
        inherited,  ///< The agent's own stream. The other fields have no effect.
        discarded,  ///< /dev/null. The other fields have no effect.
    };

    Way way = Way::relayed;
    std::string path;         ///< The file, which is appended to; empty for none.
    std::string launch_line;  ///< See OutputOptions.
    /// See OutputOptions::file_bytes_max.
    std::uint64_t file_bytes_max = 0;
    bool shown = true;
    /// The beginning of a line is shown, too, when its end has not come for 100 ms: a person may
    /// have to answer it.
    bool shows_partial = false;
    std::string prefix;  ///< Prefix of each line on the terminal.
    /// Lines that contain one of `needles` are appended to `filter_path`, with the prefix.
    std::string filter_path;
    std::vector<std::string> needles;
};

}  // namespace regroup::agent
