// SPDX-License-Identifier: Apache-2.0
#include "launcher/replay_command.h"

#include <cstdio>
#include <ctime>
#include <unistd.h>
#include <utility>
#include <vector>

#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/journal_source.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"
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
    const auto seconds = static_cast<std::time_t>(ms / 1000);
    std::tm parts{};
    char text[40] = "?";
    if (::localtime_r(&seconds, &parts) != nullptr) {
        std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    }
    return text;
}

int list(const JournalSource& source) {
    for (const StoredJob& job : source.jobs) {
        print(time_text(job.key.began_ms) + "  " + job.key.id +
              (job.ended ? "" : "  (the daemon's)"));
    }
    return 0;
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

int replay_job(const KeptJob& job) {
    print("job " + job.key.id + ", begun " + time_text(job.key.began_ms));
    Progress progress(kReplayCommand);
    const Result<journal::Replayed> result = journal::replay(with_progress(job, progress), tell);
    progress.clear();
    if (!result) {
        complain(kReplayCommand, result.error().detail);
        return kExitUsage;
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
                 "--job=nightly", "-", true},
                text_into(id));
    flags.toggle({"--list", "", "", "List the jobs and do nothing else", "", "-", true}, only_list);
    flags.toggle(
        {"--export", "", "", "Print the journal of the job as lines of JSON, and do nothing else",
         "", "-", true},
        as_lines);
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        complain(kReplayCommand, parsed.error().detail);
        return kExitUsage;
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    const auto& rest = std::get<std::vector<std::string>>(*parsed);
    if (rest.size() != 1) {
        complain(kReplayCommand, rest.empty() ? "needs a FILE (regroup replay --help)"
                                              : "takes one FILE, not '" + rest[1] + "' as well");
        return kExitUsage;
    }
    const Result<JournalSource> source = open_journal_source(rest.front());
    if (!source) {
        complain(kReplayCommand, source.error().detail);
        return kExitUsage;
    }
    if (only_list) {
        return list(*source);
    }
    const StoredJob* chosen = source->last_job(id);
    if (chosen == nullptr) {
        complain(kReplayCommand,
                 source->path + (id.empty() ? " has no job"
                                            : " has no job " + id + "; --list shows those it has"));
        return kExitUsage;
    }
    const Result<KeptJob> job = source->open(*chosen);
    if (!job) {
        complain(kReplayCommand, job.error().detail);
        return kExitUsage;
    }
    if (as_lines) {
        Progress progress(kReplayCommand);
        const Result<void> written = journal::to_lines(with_progress(*job, progress), tell);
        progress.clear();
        if (!written) {
            complain(kReplayCommand, written.error().detail);
        }
        return written ? 0 : kExitUsage;
    }
    return replay_job(*job);
}

}  // namespace regroup::launcher
