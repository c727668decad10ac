// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/journal/journal.h"

namespace regroup::journal {

/// What a replay came to.
struct Replayed {
    std::size_t entries = 0;
    std::size_t assignments = 0;  ///< Recorded, or made by the replay.
    std::size_t identical = 0;    ///< Recorded and made again, at the same step and alike.

    [[nodiscard]] bool is_same() const noexcept { return assignments == identical; }
};

/// Steps a fresh core over the job's entries and tells the story, line by line: what happened, what
/// the core decided, and why. An assignment that differs from the recorded one is shown. Errors:
/// invalid_argument, when the entries do not begin with a node or go back in time; and those of
/// reading.
Result<Replayed> replay(const KeptJob& job,
                        const std::function<void(const std::string& line)>& on_line);

/// The job as lines of JSON, its key first and then each entry, and back. Lines of several jobs may
/// follow each other.
Result<void> to_lines(const KeptJob& job,
                      const std::function<void(const std::string& line)>& on_line);
Result<std::vector<StoredJob>> from_lines(std::string_view text);

}  // namespace regroup::journal
