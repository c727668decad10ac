// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/journal/journal.h"

namespace regroup::journal {

/// The result of a replay.
struct Replayed {
    std::size_t entries = 0;
    std::size_t assignments = 0;  ///< Recorded, or made by the replay.
    std::size_t identical = 0;    ///< Recorded and made again, equal and at the same step.

    [[nodiscard]] bool is_same() const noexcept { return assignments == identical; }
};

/// Replays the job's entries into a new core and writes line by line what happened, what the core
/// decided, and why. Shows an assignment that differs from the recorded one. Errors:
/// invalid_argument, when the entries do not begin with a node or go back in time; and those of
/// reading.
Result<Replayed> replay(const KeptJob& job,
                        const std::function<void(const std::string& line)>& on_line);

/// The job as lines of JSON, its key first and then each entry, and the reverse. Lines of several
/// jobs may follow each other. The lines have no secrets: neither those of agents nor keys of
/// stores.
Result<void> to_lines(const KeptJob& job,
                      const std::function<void(const std::string& line)>& on_line);
Result<std::vector<StoredJob>> from_lines(std::string_view text);

}  // namespace regroup::journal
