// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/journal_source.h"
#include "launcher/observer_flags.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/view/event_line.h"
#include "rendezvous/view/job_history.h"
#include "rendezvous/view/trace_json.h"

namespace regroup::launcher {

namespace {

using rendezvous::TraceSource;

constexpr const char* kTraceCommand = "regroup trace";

Result<CommandEnd> put(const std::string& trace) {
    if (std::fwrite(trace.data(), 1, trace.size(), stdout) != trace.size() ||
        std::fflush(stdout) != 0) {
        complain(kTraceCommand, "cannot write the trace to stdout");
        return CommandEnd{kExitJobFailed};
    }
    return CommandEnd{};
}

Result<CommandEnd> trace_from_journal(const std::string& path, const std::string& id) {
    const Result<JournalSource> source = open_journal_source(path);
    if (!source) {
        return source.error();
    }
    const journal::StoredJob* const chosen = source->last_job(id);
    if (chosen == nullptr) {
        return invalid_argument(source->path + " has no job" + (id.empty() ? "" : " " + id) +
                                "; regroup replay --list shows those it has");
    }
    Result<journal::KeptJob> job = source->open(*chosen);
    if (!job) {
        return job.error();
    }
    TraceSource trace{chosen->key.id, chosen->key.began_ms, {}};
    // The same events as those of the daemon. The history keeps the samples of the steps.
    std::vector<std::string> lines;
    rendezvous::JobHistory history(chosen->key.id);
    std::uint64_t number = 0;
    journal::JobReader reader(std::move(*job));
    for (bool more = true; more;) {
        const Result<bool> read =
            reader.read([&](const journal::Entry& entry, const rendezvous::Effects& /*effects*/) {
                const auto& events = reader.core().job_events();
                history.record(events, entry.wall_ms);
                for (const rendezvous::JobEvent& event : events) {
                    lines.push_back(rendezvous::event_line(
                        chosen->key.id, {++number, entry.wall_ms, event, nullptr, nullptr}));
                }
                if (!entry.event) {
                    return;
                }
                if (const auto* said = std::get_if<rendezvous::NodeReported>(&*entry.event)) {
                    history.reached(entry.at, said->report.step);
                }
            });
        if (!read) {
            return read.error();
        }
        more = *read;
    }
    trace.samples = history.samples();
    trace.lines.assign(lines.begin(), lines.end());
    return put(rendezvous::trace_json(trace));
}

Result<CommandEnd> trace_from_daemon(const ObserverOptions& options) {
    const Result<DaemonAccess> access = daemon_access(options, security::Role::observer);
    if (!access) {
        return access.error();
    }
    const Result<std::string> trace = get_from_daemon(*access, target_of("trace", options.job));
    return trace ? put(*trace) : ending_of(kTraceCommand, trace.error());
}

}  // namespace

CommandEnd trace_command(std::span<const std::string> arguments) {
    ObserverOptions options;
    std::string journal;
    FlagTable flags(kTraceCommand);
    flags.usage = "regroup trace [FLAGS] [JOB] > FILE";
    flags.introduction =
        "Print the rounds, failures and recoveries of a job as a trace, for\n"
        "https://ui.perfetto.dev or chrome://tracing. JOB is the name of the job (--rdzv-id). It\n"
        "is needed if the daemon has several jobs; with --journal, the last job is the default.\n"
        "A running daemon gives the events that it still keeps, a journal those of the whole\n"
        "job.";
    flags.footer =
        "Exit code: 0 for success; 1 if the daemon refuses or stdout cannot be written; 2 for a\n"
        "mistake on the command line or a file that cannot be read; 3 if no daemon answers.";
    flags.group("Flags");
    flags.value({"--journal", "FILE", "",
                 "Read the journal of a daemon instead: its --state directory, the "
                 "journal.sqlite3 in it, or the output of regroup replay --export",
                 "--journal=/var/lib/regroup"},
                text_into(journal));
    add_observer_flags(flags, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (words.size() > 1) {
            return invalid_argument("takes one JOB, not '" + words[1] + "' as well");
        }
        options.job = words.empty() ? "" : words.front();
        return journal.empty() ? trace_from_daemon(options)
                               : trace_from_journal(journal, options.job);
    });
}

}  // namespace regroup::launcher
