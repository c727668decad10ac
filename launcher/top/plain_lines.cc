// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/plain_lines.h"

#include "launcher/top/text_width.h"

namespace regroup::launcher::top {

namespace {

// Of all columns but the last.
const std::vector<int> kWidths{12, 16, 9, -5, -5, -5, -9, -7, -8, 0};

}  // namespace

std::string plain_heading() {
    return in_columns(
        {"TIME", "JOB", "PHASE", "ROUND", "NODES", "RANKS", "STEP", "STEPS/S", "RESTARTS", "WHAT"},
        kWidths);
}

std::vector<std::string> plain_lines(const Status& status, const std::string& time) {
    if (status.jobs.empty()) {
        return {time + "  no jobs"};
    }
    std::vector<std::string> lines;
    for (const Job& job : status.jobs) {
        lines.push_back(
            in_columns({time, job.id, job.phase, std::to_string(job.round),
                        std::to_string(job.members), std::to_string(job.ranks), step_text(job.step),
                        rate_text(job.step_rate), std::to_string(job.restarts), job.text},
                       kWidths));
    }
    if (status.jobs_left_out > 0) {
        lines.push_back(time + "  " + std::to_string(status.jobs_left_out) +
                        " more jobs do not fit (--job=ID shows one)");
    }
    return lines;
}

}  // namespace regroup::launcher::top
