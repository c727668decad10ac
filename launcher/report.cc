// SPDX-License-Identifier: Apache-2.0
#include "launcher/report.h"

#include "agent/text/cause_text.h"
#include "agent/text/failure_text.h"
#include "launcher/run_plan.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

std::string job_text(const std::string& job) {
    return "job " + job + (job == kUsualJob ? " (no --rdzv-id)" : "");
}

std::vector<std::string> failure_report(const std::string& job,
                                        const rendezvous::Verdict& verdict) {
    std::vector<std::string> lines = {"regroup: " + job_text(job) +
                                      " failed: " + describe(verdict.reason)};
    if (verdict.failure) {
        // Log scrapers search for this heading, which is torchrun's.
        lines.push_back("Root Cause (first observed failure):");
        const std::vector<std::string> facts = agent::failure_lines(*verdict.failure);
        lines.insert(lines.end(), facts.begin(), facts.end());
    }
    return lines;
}

std::string ending_line(const std::string& job, const agent::Quit& quit) {
    if (quit.verdict && quit.verdict->outcome == rendezvous::Outcome::stopped &&
        quit.reason.cause == agent::QuitCause::job_closed) {
        return job_text(job) + " was stopped by " + describe(quit.verdict->author) + ": " +
               describe(quit.verdict->reason);
    }
    return quit.exit_code == 0 ? "" : text_of(quit.reason);
}

}  // namespace regroup::launcher
