// SPDX-License-Identifier: Apache-2.0
#include "launcher/report.h"

#include <algorithm>
#include <cstdio>

#include "agent/text/cause_text.h"
#include "agent/text/failure_text.h"
#include "launcher/run_plan.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher {

namespace {

// With enough digits that a small loss does not show as 100 %.
std::string percent(double share) {
    constexpr int kDigitsMax = 4;
    int digits = 1;
    for (double half = 0.05; 100 * (1 - share) < half && digits < kDigitsMax; half /= 10) {
        ++digits;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, 100 * share);
    return text;
}

}  // namespace

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

std::string goodput_line(const rendezvous::Goodput& goodput) {
    if (goodput.count == 0 || goodput.lasted <= Duration::zero()) {
        return "";
    }
    const auto seconds = [](Duration d) { return std::chrono::duration<double>(d).count(); };
    const double lost =
        std::clamp(seconds(goodput.lost + goodput.lost_at_end) / seconds(goodput.lasted), 0.0, 1.0);
    const bool one = goodput.count == 1;
    const std::uint32_t planned = std::min(goodput.planned, goodput.count);
    const std::uint32_t unplanned = goodput.count - planned;
    const bool until_start = goodput.until_start == goodput.count;
    std::string what;
    if (unplanned != 0) {
        what = std::to_string(unplanned) + (until_start ? " restart" : " recover") +
               (until_start      ? (unplanned == 1 ? "" : "s")
                : unplanned == 1 ? "y"
                                 : "ies");
    }
    if (planned != 0) {
        what += (what.empty() ? "" : " and ") + std::to_string(planned) +
                (planned == 1 ? " planned change" : " planned changes");
    }
    std::string cut_short;
    if (goodput.cut_short != 0) {
        cut_short =
            one ? ", cut short" : ", " + std::to_string(goodput.cut_short) + " of them cut short";
    }
    std::string again;
    if (goodput.lost_steps != 0) {
        again = "; " + std::to_string(goodput.lost_steps) +
                (goodput.lost_steps == 1 ? " step" : " steps") +
                (goodput.lost_at_least     ? " or more were"
                 : goodput.lost_steps == 1 ? " was"
                                           : " were") +
                " done again";
    } else if (goodput.lost_at_least) {
        again = "; it is not known how many steps were done again";
    }
    std::string end;
    if (goodput.lost_at_end > Duration::zero()) {
        end = " and the end of the job " + format_duration(goodput.lost_at_end);
    }
    if (!cut_short.empty() && !until_start) {
        cut_short += ",";
    }
    return what + cut_short + (until_start ? ", programs running again after " : " took ") +
           format_duration(goodput.lost) + end + "; " +
           (goodput.lost_at_least || goodput.until_start != 0 ? "up to " : "") + percent(1 - lost) +
           " % of " + format_duration(goodput.lasted) + " spent training" + again;
}

}  // namespace regroup::launcher
