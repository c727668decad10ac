// SPDX-License-Identifier: Apache-2.0
#include "launcher/replay_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/core/agent_core.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/say.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::launcher {

namespace {

using journal::KeptJob;
using journal::SqliteJournal;
using journal::StoredJob;

constexpr std::string_view kSqliteMagic = "SQLite format 3";

void complain(const std::string& line) {
    launcher::complain("regroup replay", line);
}

void tell(const std::string& line) {
    print(line);
}

std::string time_text(std::int64_t ms) {
    const auto seconds = static_cast<std::time_t>(ms / 1000);
    std::tm parts{};
    char text[40] = "?";
    if (::localtime_r(&seconds, &parts) != nullptr) {
        std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    }
    return text;
}

/// An opened FILE: the database of a daemon, whose entries are read on demand, or lines of JSON.
struct Source {
    std::string path;
    bool is_database = false;
    std::vector<StoredJob> jobs;

    Result<KeptJob> open(const StoredJob& job) const {
        return is_database ? SqliteJournal::job_in(path, job.key)
                           : Result<KeptJob>(journal::kept(job));
    }
};

Result<Source> open_source(const std::string& path) {
    Source source{path, false, {}};
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

/// The last job with the name `id`. With an empty `id`, the last job.
const StoredJob* choose(const Source& source, const std::string& id) {
    const auto found =
        std::find_if(source.jobs.rbegin(), source.jobs.rend(),
                     [&](const StoredJob& job) { return id.empty() || job.key.id == id; });
    return found == source.jobs.rend() ? nullptr : &*found;
}

int list(const Source& source) {
    for (const StoredJob& job : source.jobs) {
        print(time_text(job.key.began_ms) + "  " + job.key.id +
              (job.ended ? "" : "  (the daemon's)"));
    }
    return 0;
}

int replay_job(const KeptJob& job) {
    print("job " + job.key.id + ", begun " + time_text(job.key.began_ms));
    const Result<journal::Replayed> result = journal::replay(job, tell);
    if (!result) {
        complain(result.error().detail);
        return agent::kExitUsage;
    }
    std::printf("%s: %zu of %zu assignments, in %zu entries\n",
                result->is_same() ? "identical" : "DIFFERENT", result->identical,
                result->assignments, result->entries);
    return result->is_same() ? 0 : 1;
}

}  // namespace

int replay_command(std::span<const std::string> arguments) {
    std::string id;
    bool as_lines = false;
    bool only_list = false;
    FlagTable flags("regroup replay");
    flags.usage = "regroup replay [FLAGS] FILE";
    flags.introduction =
        "Run the journal of a job through the same state machine again. Print the events, the\n"
        "decisions and their reasons. FILE is the --state directory of a daemon, the\n"
        "journal.sqlite3 in it, or the output of --export. A running daemon is not disturbed.";
    flags.footer =
        "Exit code: 0 if all assignments are the same as the recorded ones, 1 if not, 2 for a\n"
        "mistake on the command line or a file that cannot be read.";
    flags.group("Flags");
    flags.value({"--job", "ID", "", "Name of the job. Without it, the job that began last",
                 "--job=nightly", "-", true},
                text_into(id));
    flags.toggle({"--list", "", "", "List the jobs and do nothing else", "", "-", true}, only_list);
    flags.toggle(
        {"--export", "", "", "Print the journal of the job as lines of JSON, and do nothing else",
         "", "-", true},
        as_lines);
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        complain(parsed.error().detail);
        return agent::kExitUsage;
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.size() != 1) {
        complain(rest.empty() ? "needs a FILE (regroup replay --help)"
                              : "takes one FILE, not '" + rest[1] + "' as well");
        return agent::kExitUsage;
    }
    const Result<Source> source = open_source(rest.front());
    if (!source) {
        complain(source.error().detail);
        return agent::kExitUsage;
    }
    if (only_list) {
        return list(*source);
    }
    const StoredJob* chosen = choose(*source, id);
    if (chosen == nullptr) {
        complain(source->path + (id.empty() ? " has no job"
                                            : " has no job " + id + "; --list shows those it has"));
        return agent::kExitUsage;
    }
    const Result<KeptJob> job = source->open(*chosen);
    if (!job) {
        complain(job.error().detail);
        return agent::kExitUsage;
    }
    if (as_lines) {
        const Result<void> written = journal::to_lines(*job, tell);
        if (!written) {
            complain(written.error().detail);
        }
        return written ? 0 : agent::kExitUsage;
    }
    return replay_job(*job);
}

}  // namespace regroup::launcher
