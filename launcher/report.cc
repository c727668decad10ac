// SPDX-License-Identifier: Apache-2.0
#include "launcher/report.h"

#include "agent/failure_text.h"

namespace regroup::launcher {

std::string failure_report(const std::string& job, const rendezvous::Verdict& verdict) {
    // The heading is torchrun's, by which log scrapers find the place.
    std::string text = "regroup: job " + job + " failed: " + verdict.reason + "\n";
    if (verdict.failure) {
        text += "Root Cause (first observed failure):\n" + agent::failure_text(*verdict.failure);
    }
    return text;
}

std::string ending_line(const std::string& job, const agent::Quit& quit) {
    if (quit.verdict && quit.verdict->outcome == rendezvous::Outcome::stopped) {
        return "job " + job + " was stopped by " + quit.verdict->author + ": " +
               quit.verdict->reason;
    }
    // A node that goes because it is done is no news.
    return quit.exit_code == 0 ? "" : quit.reason;
}

}  // namespace regroup::launcher
