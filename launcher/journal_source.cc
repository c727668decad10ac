// SPDX-License-Identifier: Apache-2.0
#include "launcher/journal_source.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "rendezvous/journal/replay.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::launcher {

using journal::KeptJob;
using journal::SqliteJournal;
using journal::StoredJob;

namespace {

constexpr std::string_view kSqliteMagic = "SQLite format 3";

}  // namespace

const StoredJob* JournalSource::last_job(const std::string& id) const {
    const auto found = std::find_if(jobs.rbegin(), jobs.rend(), [&](const StoredJob& job) {
        return id.empty() || job.key.id == id;
    });
    return found == jobs.rend() ? nullptr : &*found;
}

Result<KeptJob> JournalSource::open(const StoredJob& job) const {
    return is_database ? SqliteJournal::job_in(path, job.key) : Result<KeptJob>(journal::kept(job));
}

Result<JournalSource> open_journal_source(const std::string& path) {
    JournalSource source{path, false, {}};
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        source.path += "/journal.sqlite3";
    }
    std::ifstream file(source.path, std::ios::binary);
    if (!file) {
        return system_failure("cannot open " + source.path, errno);
    }
    std::string head(kSqliteMagic.size(), '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    source.is_database = head == kSqliteMagic;
    Result<std::vector<StoredJob>> jobs = std::vector<StoredJob>();
    if (source.is_database) {
        jobs = SqliteJournal::jobs_in(source.path);
    } else {
        file.clear();
        file.seekg(0);
        std::ostringstream text;
        text << file.rdbuf();
        jobs = journal::from_lines(text.str());
        if (!jobs) {
            return Failure(jobs.error().code, source.path + ", " + jobs.error().detail);
        }
    }
    if (!jobs) {
        return jobs.error();
    }
    source.jobs = std::move(*jobs);
    return source;
}

}  // namespace regroup::launcher
