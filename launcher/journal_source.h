// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launcher/flag_table.h"
#include "rendezvous/base/result.h"
#include "rendezvous/journal/journal.h"

namespace regroup::launcher {

/// The jobs in a file that a daemon has written: its database, whose entries are read on demand, or
/// lines of JSON.
struct JournalSource {
    std::string path;
    bool is_database = false;
    std::vector<journal::StoredJob> jobs;

    /// The last job with the name `id`. With an empty `id`, the last job. Null if there is none.
    [[nodiscard]] const journal::StoredJob* last_job(const std::string& id) const;
    /// Errors: those of reading the file.
    Result<journal::KeptJob> open(const journal::StoredJob& job) const;
};

/// `path`: the --state directory of a daemon, the journal.sqlite3 in it, or the output of `regroup
/// replay --export`. Errors: system and invalid_argument; one sentence that names the file.
Result<JournalSource> open_journal_source(const std::string& path);

}  // namespace regroup::launcher
