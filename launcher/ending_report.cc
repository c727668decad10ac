// SPDX-License-Identifier: Apache-2.0
#include "launcher/ending_report.h"

#include <iterator>
#include <utility>

#include "agent/workers/error_file.h"
#include "launcher/host.h"
#include "launcher/report.h"
#include "launcher/torchrun_report.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {
namespace {

constexpr const char* kErrorFile = "TORCHELASTIC_ERROR_FILE";

}  // namespace

void EndingReport::tell(const agent::Quit& quit, const Seen& seen) {
    using rendezvous::Outcome;
    if (quit.verdict && quit.reason.cause == agent::QuitCause::missed) {
        const std::string line =
            "nothing was run here: " + job_text(plan_.agent.core.job) + " has ended (" +
            std::string(to_string(quit.verdict->outcome)) + ")" +
            (seen.was_standby
                 ? "; it ran another command than this node, which waited as a standby "
                   "(another job needs another --rdzv-id)"
                 : " before this node could join it, closed by " + describe(quit.verdict->author) +
                       ": " + describe(quit.verdict->reason) +
                       " (the same line, started again, begins the job anew)");
        output_.say(line);
        tell_parent(std::nullopt, line);
    } else if (quit.verdict && quit.verdict->outcome == Outcome::succeeded && !seen.has_run) {
        output_.say((quit.exit_code == 0 ? "" : "nothing was run here: ") +
                    job_text(plan_.agent.core.job) +
                    " has ended (succeeded); this node waited as a standby and was not needed" +
                    (quit.exit_code == 0 ? "" : " (with --standbys that is a success)"));
    } else if (quit.verdict && quit.verdict->outcome == Outcome::failed) {
        if (!seen.has_run) {
            output_.say("nothing was run here: " + job_text(plan_.agent.core.job) +
                        " ended without this node, which waited as a standby, and this is its "
                        "report");
        }
        tell_failure(*quit.verdict);
    } else if (const std::string line = ending_line(plan_.agent.core.job, quit); !line.empty()) {
        const bool met_nobody = quit.exit_code == kExitNoRendezvous;
        const bool is_refused = quit.reason.cause == agent::QuitCause::refused;
        output_.say(line + (met_nobody || is_refused ? seen.endpoint_note : ""));
        tell_parent(std::nullopt, line);
    }
    sum_up(quit, seen);
}

// A node that leaves before the end of the job has no verdict, and sums up what it has seen.
void EndingReport::sum_up(const agent::Quit& quit, const Seen& seen) {
    const bool is_done = quit.exit_code == 0 && quit.signal == 0;
    if (!seen.has_run || (!quit.verdict && is_done)) {
        return;
    }
    const std::string line = describe(quit.verdict ? quit.verdict->goodput : seen.goodput);
    if (line.empty()) {
        return;
    }
    if (quit.verdict) {
        tell_all({"regroup: " + line});
    } else {
        output_.say("while this node took part, " + line);
    }
}

void EndingReport::tell_failure(const rendezvous::Verdict& verdict) {
    if (plan_.as_torchrun && verdict.failure) {
        output_.say(job_text(plan_.agent.core.job) + " failed: " + describe(verdict.reason));
        if (!verdict.failure->evidence.empty()) {
            output_.say(verdict.failure->evidence);
        }
        output_.say_lines(torchrun_summary(plan_.entry_point, *verdict.failure));
    } else {
        tell_all(failure_report(plan_.agent.core.job, verdict));
    }
    tell_parent(verdict.failure, describe(verdict.reason));
}

void EndingReport::tell_all(std::vector<std::string> lines) {
    if (!collects_) {
        output_.say_lines(lines);
        return;
    }
    common_.insert(common_.end(), std::make_move_iterator(lines.begin()),
                   std::make_move_iterator(lines.end()));
}

// Writes the error file that the parent of this process named.
void EndingReport::tell_parent(std::optional<rendezvous::WorkerFailure> failure,
                               const std::string& reason) {
    const std::string path = variable(kErrorFile).value_or("");
    if (path.empty()) {
        return;
    }
    if (failure && failure->node != plan_.agent.core.offer.name) {
        failure->error_file.clear();  // A path on another machine.
    }
    if (failure && failure->error_file.empty() && plan_.as_torchrun) {
        return;  // As torchrun, whose caller then reports the exit code.
    }
    const Result<void> written = failure ? agent::write_parent_error_file(path, *failure)
                                         : agent::write_own_error_file(path, reason);
    if (!written) {
        output_.say(written.error().detail);
    }
}

}  // namespace regroup::launcher
