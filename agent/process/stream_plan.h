// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regroup::agent {

/// What becomes of one output stream of one worker.
struct StreamPlan {
    enum class Way : std::uint8_t {
        relayed,    ///< Through the agent: see the other fields.
        inherited,  ///< The agent's own stream. The other fields do not count; so for
        discarded,  ///< /dev/null.
    };

    Way way = Way::relayed;
    std::string path;  ///< The file; empty for none. Appended to if it exists.
    /// See OutputOptions::file_bytes_max.
    std::uint64_t file_bytes_max = 0;
    bool shown = true;
    std::string prefix;  ///< Of each line shown.
    /// Lines with any of `needles` in them are appended to `filter_path`, with the prefix.
    std::string filter_path;
    std::vector<std::string> needles;
};

}  // namespace regroup::agent
