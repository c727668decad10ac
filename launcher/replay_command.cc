// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <ctime>
#include <unistd.h>
#include <utility>
#include <vector>

#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/journal_source.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/time_text.h"
#include "rendezvous/journal/replay.h"

namespace regroup::launcher {

namespace {

using journal::KeptJob;
using journal::StoredJob;

constexpr const char* kReplayCommand = "regroup replay";

void tell(const std::string& line) {
    print(line);
}

std::string time_text(std::int64_t ms) {
    const std::string text = local_time_text(static_cast<std::time_t>(ms / 1000));
    return text.empty() ? "?" : text;
}

Result<CommandEnd> list(const JournalSource& source) {
    for (const StoredJob& job : source.jobs) {
        print(time_text(job.key.began_ms) + "  " + job.key.id +
              (job.ended ? "" : "  (the daemon's)"));
    }
    return CommandEnd{};
}

/// The same job, which shows how many of its entries have been read. Output on a terminal shows
/// that by itself.
KeptJob with_progress(const KeptJob& job, Progress& progress) {
    if (::isatty(STDOUT_FILENO) == 1) {
        return job;
    }
    return {job.key, job.ended, [&progress, next = job.next, count = std::size_t{0}]() mutable {
                Result<std::vector<journal::Entry>> entries = next();
                if (entries && !entries->empty()) {
                    count += entries->size();
                    progress.show(std::to_string(count) + " entries, up to " +
                                  time_text(entries->back().wall_ms));
                }
                return entries;
            }};
}

Result<CommandEnd> replay_job(const KeptJob& job) {
    print("job " + job.key.id + ", begun " + time_text(job.key.began_ms));
    Progress progress(kReplayCommand);
    const Result<journal::Replayed> result = journal::replay(with_progress(job, progress), tell);
    progress.clear();
    if (!result) {
        return result.error();
    }
    std::printf("%s: %zu of %zu assignments, in %zu entries\n",
                result->is_same() ? "identical" : "DIFFERENT", result->identical,
                result->assignments, result->entries);
    return CommandEnd{result->is_same() ? 0 : kExitJobFailed};
}

struct ReplayOptions {
    std::string job;
    bool as_lines = false;
    bool only_list = false;
};

Result<CommandEnd> replay(const ReplayOptions& options, const Words& words) {
    if (words.size() != 1) {
        return invalid_argument(words.empty() ? "needs a FILE (regroup replay --help)"
                                              : "takes one FILE, not '" + words[1] + "' as well");
    }
    const Result<JournalSource> source = open_journal_source(words.front());
    if (!source) {
        return source.error();
    }
    if (options.only_list) {
        return list(*source);
    }
    const StoredJob* chosen = source->last_job(options.job);
    if (chosen == nullptr) {
        return invalid_argument(
            source->path + (options.job.empty()
                                ? " has no job"
                                : " has no job " + options.job + "; --list shows those it has"));
    }
    const Result<KeptJob> job = source->open(*chosen);
    if (!job) {
        return job.error();
    }
    if (!options.as_lines) {
        return replay_job(*job);
    }
    Progress progress(kReplayCommand);
    const Result<void> written = journal::to_lines(with_progress(*job, progress), tell);
    progress.clear();
    return written ? Result<CommandEnd>(CommandEnd{}) : written.error();
}

}  // namespace

CommandEnd replay_command(std::span<const std::string> arguments) {
    ReplayOptions options;
    FlagTable flags(kReplayCommand);
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
                 "--job=nightly"},
                text_into(options.job));
    flags.toggle({"--list", "", "", "List the jobs and do nothing else"}, options.only_list);
    flags.toggle(
        {"--export", "", "", "Print the journal of the job as lines of JSON, and do nothing else"},
        options.as_lines);
    return run_with(flags, arguments, [&](const Words& words) { return replay(options, words); });
}

}  // namespace regroup::launcher
